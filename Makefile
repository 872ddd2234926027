# A thin front door over CMake presets. `make help` lists the targets.
SHELL := /bin/bash
JOBS ?= $(shell nproc)

.PHONY: all help setup demo test test-full bench lint format install portable clean fuzz
all: build/build.ninja
	@cmake --build build -j $(JOBS) -- --quiet

build/build.ninja:
	@scripts/setup build
	@cmake --preset release >/dev/null

help:
	@echo "make            build build/bin/millrace"
	@echo "make demo       install what is missing, build, run the main job on small defaults"
	@echo "make test       all tests, at most 12 minutes on 2 cores"
	@echo "make test-full  in addition: long tests, frameworks, clang, fuzzing"
	@echo "make bench      measure against floors; writes build/bench.md"
	@echo "make lint       static checks"
	@echo "make format     clang-format on our sources"
	@echo "make fuzz       each fuzz target for a million executions"
	@echo "make portable   tarball that runs on any x86-64 Linux with glibc 2.36 or newer, with or without MPI"
	@echo "make install    to PREFIX (default /usr/local), DESTDIR honoured"

demo: all
	@scripts/demo

test:
	@scripts/setup test
	@scripts/test

test-full:
	@scripts/setup full
	@scripts/test full

bench:
	@scripts/setup full
	@$(MAKE) --no-print-directory all
	@bench/run

lint:
	@scripts/setup full
	@scripts/lint

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

fuzz:
	@scripts/setup full
	@scripts/fuzz

portable:
	@scripts/setup portable
	@packaging/portable

install: all
	@cmake --install build --prefix "$(or $(PREFIX),/usr/local)"

clean:
	@rm -rf build
