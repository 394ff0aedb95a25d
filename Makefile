# Everything here works offline once the modules are there.

GO      ?= go
RELEASE ?= $(shell sed -n 's/^\#\# \(v[0-9][^ ]*\).*/\1/p' CHANGELOG.md | head -n1)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BIN     ?= bin

export CGO_ENABLED = 0

# All targets build alike, so that none builds again what another has built.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath

# The packages of the module client, which ./... does not name.
CLIENT = github.com/annalsdb/annals/client/...

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What a simulation needs: see simulation/DESIGN.md.
SIMULATE_TAGS = -tags durablelocks
SIMULATE_LINK = -checklinkname=0

.PHONY: build
build: ## build the static binary bin/annals
	$(GO) build $(SIMULATE_TAGS) -ldflags "$(SIMULATE_LINK) -X main.version=$(VERSION)" -o $(BIN)/annals ./cmd/annals

# The module of the tests in a browser.
UI = integration/ui

# Tests of clusters wait more than they compute: of five packages at once two work. After
# some small packages, which show at once that it runs, those that wait longest are begun first, and
# next to them those in a browser, whose module go test cannot name here. lint vets.
TESTED = $(abspath $(BIN))/tested/annals
GOTEST = $(abspath $(BIN))/gotest -binary $(TESTED) -vet=off -timeout 20m -tags invariants

# The runner, and the binary that all tests start.
.PHONY: gotest
gotest:
	$(GO) build -o $(BIN)/gotest ./scripts/gotest
	$(GO) build -tags invariants -o $(TESTED) ./cmd/annals

.PHONY: test
test: gotest ## run the tests, with the costly checks of invariants
	@(cd $(UI) && exec $(GOTEST) -skip '^TestLong' .) & ui=$$!; \
	$(GOTEST) -p 4 -skip '^TestLong' ./event ./config ./integration ./replication ./torture ./node ./log $(CLIENT) ./...; code=$$?; \
	wait $$ui && exit $$code

.PHONY: test-long
test-long: gotest ## run the tests that take longest, which test leaves out
	@(cd $(UI) && exec $(GOTEST) -run '^TestLong' .) & ui=$$!; \
	$(GOTEST) -run '^TestLong' ./integration ./torture; code=$$?; \
	wait $$ui && exit $$code

.PHONY: test-plain
test-plain: ## run all tests as the product is built
	$(GO) test ./... $(CLIENT)
	$(GO) -C $(UI) test ./...

.PHONY: race
race: export CGO_ENABLED = 1
race: ## run the tests under the race detector (needs a C compiler)
	$(GO) test -race -vet=off -tags invariants -p 4 -timeout 15m $(RACE_PACKAGES)

# The race detector slows everything down several times; what it cannot see
# through (other processes) or cannot find (source rules) is left out.
RACE_PACKAGES ?= $(shell $(GO) list ./... $(CLIENT) | grep -v -e /integration -e /torture -e /simulation -e /internal/lint)

.PHONY: format
format: ## fail on files that gofmt -s would change
	@changed="$$(find . -name '*.go' -not -path './.git/*' -exec gofmt -s -l {} +)"; \
	if [ -n "$$changed" ]; then echo "gofmt -s would change:"; echo "$$changed"; exit 1; fi

.PHONY: vet
vet: ## go vet, with and without the build tags
	$(GO) vet ./...
	$(GO) -C client vet ./...
	$(GO) vet -tags invariants,sabotage ./...
	$(GO) -C $(UI) vet -tags invariants ./...
	$(GO) -C tools vet ./...

.PHONY: staticcheck
staticcheck: ## staticcheck at the version pinned in tools/go.mod
	$$($(GO) -C tools tool -n staticcheck) -tags invariants ./... $(CLIENT)
	tool=$$($(GO) -C tools tool -n staticcheck) && cd $(UI) && $$tool -tags invariants ./...

.PHONY: rules
rules: ## the house rules: imports, forbidden calls, file sizes
	$(GO) test -count=1 ./internal/lint

.PHONY: generate
generate: ## write the Go files of grpc/proto/*.proto
	GO="$(GO)" $(GO) -C tools run ./protogen

.PHONY: generated
generated: ## fail if generate would change a byte
	GO="$(GO)" $(GO) -C tools run ./protogen -check

.PHONY: lint
lint: format vet staticcheck rules generated ## format, vet, staticcheck, the house rules and generated files

.PHONY: torture
torture: build ## torture clusters of three nodes for some minutes (TORTURE="--rounds 2 --seconds 30")
	$(BIN)/annals torture $(TORTURE)

TORTURE ?= --rounds 2 --seconds 30

# Go runs one thing after the other, so that a seed brings back more of what it did before.
.PHONY: simulate
simulate: export GOMAXPROCS = 1
simulate: ## simulate clusters in virtual time (SIMULATE="-seeds 1000 -hours 1")
	$(GO) test -count=1 -timeout 24h -tags invariants,durablelocks -ldflags "$(SIMULATE_LINK)" ./simulation -args $(SIMULATE)

SIMULATE ?= -seeds 200 -hours 0.05 -limit 100s

.PHONY: sabotage
sabotage: ## show that torture and tests notice broken promises
	GO="$(GO)" scripts/sabotage.sh
	GO="$(GO)" scripts/mutants.sh

.PHONY: fuzz-short
fuzz-short: ## run every fuzz target on some inputs (FUZZTIME=10000x)
	GO="$(GO)" scripts/fuzz-short.sh

.PHONY: integration
integration: ## run the black-box tests against the real binary
	$(GO) test -count=1 -timeout 15m ./integration/...
	$(GO) -C $(UI) test -count=1 -timeout 15m ./...

.PHONY: bench
bench: build ## measure a node: make bench ARGS="append --help"
	$(BIN)/annals bench $(ARGS)

.PHONY: golden
golden: ## rewrite the golden files; review the diff
	GO="$(GO)" scripts/golden.sh

.PHONY: ui-vendor
ui-vendor: ## make web/static/vendor anew out of what web/vendor locks (needs npm)
	GO="$(GO)" scripts/ui-vendor.sh

.PHONY: ui-vendor-check
ui-vendor-check: ## fail if ui-vendor would change a byte (needs npm)
	GO="$(GO)" scripts/ui-vendor.sh --check

.PHONY: pictures
pictures: ## make the pictures of the web interface, docs/pictures (needs chromium)
	ANNALS_DOCS_PICTURES="$(CURDIR)/docs/pictures" $(GO) -C $(UI) test -count=1 -run '^TestPictures$$' .

.PHONY: metrics-page
metrics-page: ## write docs/metrics.md from the metrics of a cluster
	ANNALS_METRICS_PAGE=1 $(GO) test -count=1 -run '^TestLongClusterStatistics$$' ./integration

.PHONY: release
release: ## build archives, packages, SBOM and sums of a release into bin/release
	GO="$(GO)" scripts/release.sh $(RELEASE) $(BIN)/release

.PHONY: release-version
release-version: ## print the version that make release builds
	@echo $(RELEASE)

.PHONY: release-check
release-check: ## build a release of the commit in two folders and compare the sums
	GO="$(GO)" scripts/release-check.sh $(RELEASE)

.PHONY: image
image: ## build the image annals:latest with docker, podman or buildah
	GO="$(GO)" scripts/image.sh $(RELEASE)

.PHONY: deploy-check
deploy-check: export RELEASE_PLATFORMS = linux/$(shell $(GO) env GOARCH)
deploy-check: release ## check packages, unit, image and chart as far as this machine can (root)
	GO="$(GO)" scripts/deploy-check.sh $(RELEASE) $(BIN)/release

.PHONY: workflows
workflows: ## check .github/workflows
	$$($(GO) -C tools tool -n actionlint)

.PHONY: vuln
vuln: ## look for known vulnerabilities in what the server uses (needs a network)
	GO="$(GO)" scripts/vuln.sh

.PHONY: tidy
tidy: ## fail if go mod tidy would change a go.mod or go.sum
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	$(GO) -C tools/release mod tidy -diff
	$(GO) -C client mod tidy -diff
	$(GO) -C $(UI) mod tidy -diff

.PHONY: check
check: lint tidy test test-long test-plain ## what a change must pass
