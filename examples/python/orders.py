#!/usr/bin/env python3
"""Orders in Annals over HTTP, with nothing but Python's standard library.

    python3 examples/python/orders.py http://127.0.0.1:2113

The password of the user admin is in ANNALS_PASSWORD.
"""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

NODE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:2113"
LOGIN = "admin:" + os.environ.get("ANNALS_PASSWORD", "changeit")


class WrongVersion(Exception):
    """Another writer was faster. The argument is the version that the stream has now."""


class KeepLogin(urllib.request.HTTPRedirectHandler):
    """A follower redirects to the leader with 307: method, body and login stay."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if code != 307:
            return None
        return urllib.request.Request(newurl, data=req.data, headers=req.headers, method=req.get_method())


opener = urllib.request.build_opener(KeepLogin)


def ask(method, path, body=None, timeout=30, **headers):
    """Sends a request and returns the answer, which is still to be read."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers["Authorization"] = "Basic " + base64.b64encode(LOGIN.encode()).decode()
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(NODE + path, data=data, headers=headers, method=method)
    return opener.open(request, timeout=timeout)


def append(stream, expected, *events):
    """Appends (type, data) pairs, all or none. What gets no answer is sent again with the same ids,
    by which the cluster knows it: each event is written once."""
    batch = [{"eventId": str(uuid.uuid4()), "eventType": kind, "data": data} for kind, data in events]
    for attempt in range(10):
        try:
            with ask("POST", f"/streams/{stream}", batch,
                     Content_Type="application/vnd.eventstore.events+json", ES_ExpectedVersion=str(expected)):
                return
        except urllib.error.HTTPError as refused:
            current = refused.headers.get("ES-CurrentVersion")
            if current is not None:
                raise WrongVersion(int(current)) from None
            if refused.code not in (408, 500, 503):
                raise
        except OSError:
            pass  # No answer: it may have been written.
        time.sleep(0.1 * 2**attempt)
    raise TimeoutError(f"no node took the events of {stream}")


def read(stream):
    """Gives the events of a stream, oldest first. A page has the newest entry first, and the link
    "previous" leads to the page of newer events."""
    path = f"/streams/{stream}/0/forward/100"
    while path:
        with ask("GET", path + "?embed=body", Accept="application/vnd.eventstore.atom+json") as answer:
            page = json.load(answer)
        yield from reversed(page["entries"])
        newer = [link["uri"] for link in page["links"] if link["relation"] == "previous"]
        path = urllib.parse.urlsplit(newer[0]).path if newer and page["entries"] else None


def subscribe(stream):
    """Gives each event of a stream, then each new one as it is written. It resumes after the last
    event that it got when the connection breaks."""
    last = None
    while True:
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last_Event_ID"] = last
        try:
            with ask("GET", f"/streams/{stream}?from=start", timeout=45, **headers) as answer:
                message = {}
                for line in answer:
                    line = line.decode().rstrip("\r\n")
                    if line:
                        field, _, value = line.partition(":")
                        message[field] = value.removeprefix(" ")
                        continue
                    last = message.get("id", last)
                    if "data" in message and "event" not in message:
                        yield json.loads(message["data"])
                    message = {}
        except urllib.error.HTTPError as refused:
            if refused.code != 503:
                raise
        except OSError:
            pass
        time.sleep(0.5)


def main():
    order = f"order-{uuid.uuid4()}"
    append(order, -1, ("OrderPlaced", {"total": 30}), ("OrderPaid", {"amount": 12}))
    for event in read(order):
        print("read", event["eventNumber"], event["eventType"], json.loads(event["data"]))
    try:
        append(order, 0, ("OrderPaid", {"amount": 18}))
    except WrongVersion as now:
        print("another writer was here: the last event is", now)
        append(order, now.args[0], ("OrderPaid", {"amount": 18}))
    paid = 0
    for event in subscribe(order):
        paid += json.loads(event["data"]).get("amount", 0)
        print("followed", event["eventType"], "paid so far:", paid)
        if paid == 30:
            break


if __name__ == "__main__":
    main()
