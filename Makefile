# Entry points. `make demo` and `make test` need nothing but a clean clone, Debian or Ubuntu,
# and Rust: they install what is missing, as root or through sudo.

CARGO ?= cargo
target := $(or $(CARGO_TARGET_DIR),target)
binaries := $(target)/release

.DEFAULT_GOAL := help
.PHONY: help build demo pictures test bench lab concurrency soak fuzz mutate waits book dist deb deny reproducible kernels \
	generate check-generated fmt clippy clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

build: ## Build the release binary, target/release/fragmend
	@scripts/prerequisites build
	$(CARGO) build --release --bin fragmend

demo: ## See it work: one database on two simulated drives; on one it pays to mend it, on the other not
	@scripts/prerequisites demo
	$(CARGO) build --release --bin fragmend --bin demo
	@scripts/as-root $(binaries)/demo

pictures: ## Take the pictures in docs/pictures, of reports of a run of the demo
	@scripts/prerequisites test
	$(CARGO) build --release --bin fragmend --bin pictures
	@mkdir -p docs/pictures
	@scripts/as-root $(binaries)/pictures docs/pictures

test: ## Run every test, and print what each tried; most need root and loop devices
	@scripts/prerequisites test
	scripts/test

bench: ## Print the comparison tables (QUICK=1 for small files)
	@scripts/prerequisites bench
	$(CARGO) build --release --bin fragmend --bin bench
	@status=0; \
	scripts/as-root $(binaries)/bench $(if $(QUICK),--quick) || status=1; \
	scripts/bench || status=1; \
	exit $$status

# Exit code 2 means that a figure is out of its band, which is no failure here.
lab: build ## Repeat the papers' experiments on simulated drives; pictures go to target/lab
	$(binaries)/fragmend lab run all --out $(target)/lab || test $$? -eq 2

concurrency: ## Print how long programs wait while their files are moved (QUICK=1 for a short run)
	@scripts/prerequisites test
	$(CARGO) build --release --bin fragmend --bin concurrency
	@scripts/as-root $(binaries)/concurrency $(if $(QUICK),--quick)

waits: ## Print how long other programs wait beside moves on a slow disk and in little memory
	@scripts/prerequisites test
	$(CARGO) build --release --bin fragmend --bin waits
	@scripts/as-root $(binaries)/waits

soak: ## Cut the power 10,000 times while files move, compare every byte (CUTS=, SEED=, BED=, FLUSHES=1)
	@scripts/prerequisites soak
	$(CARGO) build --profile soak --bin fragmend --bin soak
	@scripts/as-root $(target)/soak/soak $(if $(CUTS),--cuts $(CUTS)) $(if $(SEED),--seed $(SEED)) $(if $(FLUSHES),--every-flush) \
		$(foreach bed,$(BED),--bed $(bed))

fuzz: ## Fuzz every parser with 10 million inputs (RUNS=, TARGETS=; QUICK=1: 10 seconds each, or SECONDS_EACH=)
	@scripts/prerequisites fuzz
	$(if $(or $(QUICK),$(SECONDS_EACH)),SECONDS_EACH=$(or $(SECONDS_EACH),10)) $(if $(RUNS),RUNS=$(RUNS)) scripts/fuzz $(TARGETS)

mutate: ## Remove each barrier, lease and comparison in turn; a test must fail (ONLY= for some)
	@scripts/prerequisites test
	$(CARGO) run --quiet -p xtask -- mutate $(ONLY)

book: ## Build the book of docs/ into target/book, with mdBook, which is built first if it is missing
	@scripts/prerequisites build
	scripts/book

dist: ## Build static binaries for x86-64 and aarch64, in archives: target/packages/*.tar.gz, SHA256SUMS
	@scripts/prerequisites dist
	packaging/inside dist compile
	packaging/inside dist archive

deb: ## Build Debian packages of the same for amd64 and arm64: target/packages/*.deb
	@scripts/prerequisites dist
	packaging/inside dist compile
	packaging/inside dist deb

deny: ## Check licences, origins and versions of dependencies with cargo-deny, which is built first (CHECKS=advisories)
	@scripts/prerequisites build
	scripts/deny $(CHECKS)

reproducible: ## Build all that is packaged twice, in two places, and compare the bytes
	@scripts/prerequisites dist
	packaging/reproducible

kernels: ## Try the static binaries on kernels of Debian and Ubuntu, in emulated machines (fetches them; ONLY= for one)
	@scripts/prerequisites kernels
	packaging/smoke
	LIMIT=3600 scripts/test --test loop_kernels -- --ignored --nocapture --test-threads 1 $(ONLY)

generate: ## Write man pages, completions and JSON schemas from the binary's definitions
	$(CARGO) run --quiet -p xtask -- generate

check-generated: ## Fail if a generated file is stale
	$(CARGO) run --quiet -p xtask -- generate --check

fmt: ## Format the code
	$(CARGO) fmt --all

clippy: ## Lint everything, warnings are errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

clean: ## Remove what was built
	$(CARGO) clean
