#!/usr/bin/env python3
"""Runs one profile of deploy/docker/compose.yaml with podman, as far as the file needs, waits until
every node is healthy, writes an event through the last node, reads it from the first, and removes
everything. Debian's podman-compose does not know profiles and conditions.

    compose-check.py PROFILE IMAGE RUN_OPTIONS -- PODMAN...
"""
import json, os, re, subprocess, sys, time

import yaml

profile, image, options = sys.argv[1], sys.argv[2], sys.argv[3].split()
podman = sys.argv[sys.argv.index("--") + 1 :]
prefix = f"annals-check-{os.getpid()}-"


def run(*args, check=True, timeout=120):
    done = subprocess.run([*podman, *args], capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(args)}: {done.stderr.strip()}")
    return done


def substitute(value):
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: image if m[1] == "ANNALS_IMAGE" else os.environ.get(m[1]) or m[2], str(value))


with open(os.path.join(os.path.dirname(__file__), "..", "deploy", "docker", "compose.yaml")) as f:
    compose = yaml.safe_load(f)
services = {n: s for n, s in compose["services"].items() if profile in s.get("profiles", [profile])}
made = []


def start(name):
    if name in made:
        return
    service = services[name]
    for other, how in service.get("depends_on", {}).items():
        start(other)
        if how["condition"] == "service_completed_successfully":
            code = run("wait", prefix + other).stdout.strip()
            if code != "0":
                sys.exit(f"{other} ended with {code}: {run('logs', prefix + other).stderr}")
    args = ["run", "-d", "--name", prefix + name, "--network", prefix + "net", "--network-alias", name, *options]
    for key, value in service.get("environment", {}).items():
        args += ["-e", f"{key}={substitute(value)}"]
    for volume in service.get("volumes", []):
        args += ["-v", prefix + volume]
    for port in service.get("ports", []):
        args += ["-p", port]
    made.append(name)
    run(*args, substitute(service["image"]), *service.get("command", []))


def curl(url, *args):
    done = subprocess.run(["curl", "-sSk", "-m", "20", "-u", "admin:changeit", "-w", "%{http_code}", url, *args], capture_output=True, text=True)
    return done.stdout + done.stderr


try:
    run("network", "create", prefix + "net")
    for name in services:
        start(name)
    nodes = [n for n in services if services[n].get("ports")]
    ports = [services[n]["ports"][0].split(":")[1] for n in nodes]
    scheme = "https" if len(nodes) > 1 else "http"
    until = time.time() + 60
    for name, port in zip(nodes, ports):
        while not curl(f"{scheme}://127.0.0.1:{port}/health/ready").endswith("204"):
            if time.time() > until:
                sys.exit(f"{name} is not ready:\n{run('logs', '--tail', '20', prefix + name).stderr}")
            time.sleep(0.2)
        health = run("healthcheck", "run", prefix + name, check=False)
        if health.returncode != 0:
            sys.exit(f"the health check of {name}: {health.stdout}{health.stderr}")
    states = {port: json.loads(curl(f"{scheme}://127.0.0.1:{port}/info")[:-3])["state"] for port in ports}
    into = next((p for p in ports if states[p] == "follower"), ports[-1])
    event = json.dumps([{"eventId": "0c6e8f3a-6a0b-4f6e-8f0e-3f1b6f1d2a77", "eventType": "OrderPlaced", "data": {"total": 12}}])
    wrote = curl(f"{scheme}://127.0.0.1:{into}/streams/orders-1", "-H", "Content-Type: application/vnd.eventstore.events+json", "-d", event)
    got = curl(f"{scheme}://127.0.0.1:{ports[0]}/streams/orders-1/0", "-H", "Accept: application/json", "-H", "Annals-Node: leader")
    if not wrote.endswith("201") or '"total": 12' not in got.replace('":12', '": 12'):
        sys.exit(f"write: {wrote}\nread: {got}")
    print(f"{len(nodes)} healthy, an event went in at the {states[into]} and came out of the leader")
finally:
    for name in reversed(made):
        run("rm", "-f", "-t", "20", prefix + name, check=False)
    run("network", "rm", "-f", prefix + "net", check=False)
    for volume in compose["volumes"]:
        run("volume", "rm", "-f", prefix + volume, check=False)
