# `make build` builds the server, `make run` starts one, `make test` runs the checks and tests. Each installs what is missing.

.PHONY: run test build fmt lint docs

run:
	@scripts/install-packages build
	@cargo build --release --quiet -p turnpike
	@exec $${CARGO_TARGET_DIR:-target}/release/turnpike --data ./data

build:
	@scripts/install-packages build
	cargo build --release -p turnpike

test:
	@scripts/install-packages build test
	@scripts/run-tests

# What a contributor runs before a commit.
fmt:
	cargo fmt --all

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

docs:
	cargo xtask docs
