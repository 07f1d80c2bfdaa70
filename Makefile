# idempotency: a PostgreSQL extension, built with PGXS.
#
#   make                build against the pg_config found in PATH, or PG_CONFIG=/path/to/pg_config
#   make install        install into that PostgreSQL
#   make installcheck   all tests against a running server (one file: REGRESS=name, ISOLATION=name, PROVE_TESTS=test/t/name.pl)
#   make demo           the demonstration, on a throwaway server
#   make test           all checks and tests, on a throwaway server
#   make mutants        builds that are broken on purpose, each of which must fail its test
#   make bench          what being guarded costs

# These set up everything they need themselves, so they must not depend on an installed PostgreSQL.
ifneq ($(filter demo test mutants bench,$(MAKECMDGOALS)),)

.PHONY: demo test mutants bench
demo:
	@tools/throwaway demo/run
test:
	@tools/throwaway --with-test-tools test/run
mutants:
	@tools/throwaway --with-test-tools test/mutants/run
bench:
	@tools/throwaway bench/run

else

EXTENSION = idempotency
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" idempotency.control)

MODULE_big = idempotency
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))

# The script is joined from its parts in this order: what a part refers to stands before it.
SQL_PARTS = init request_digest state_diagram operation_log target insert_or_return ignore_duplicates \
	guard_transitions state_machine transition accumulate operation administration
DATA_built = idempotency--$(EXTVERSION).sql
EXTRA_CLEAN = idempotency--*.sql results output_iso tmp_check

REGRESS_OPTS = --encoding=UTF8
REGRESS = $(sort $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)))
ISOLATION = $(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

PG_CFLAGS = -std=gnu99 -fvisibility=hidden
PG_CPPFLAGS = -DIDEM_VERSION='"$(EXTVERSION)"'

PG_CONFIG ?= pg_config
ifeq ($(shell $(PG_CONFIG) --version 2>/dev/null),)
$(error "$(PG_CONFIG)" does not run. Install PostgreSQL with its server headers (Debian, Ubuntu: postgresql-server-dev-NN), or name it: make PG_CONFIG=/path/to/pg_config. `make demo` and `make test` do this for you)
endif
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(wildcard $(PGXS)),)
$(error The server headers of $(shell $(PG_CONFIG) --version) are missing: no file $(PGXS). Install them (Debian, Ubuntu: postgresql-server-dev-NN), or name another PostgreSQL: make PG_CONFIG=/path/to/pg_config)
endif
include $(PGXS)

$(OBJS): $(wildcard src/*.h) idempotency.control

idempotency--$(EXTVERSION).sql: $(SQL_PARTS:%=src/%.sql) Makefile idempotency.control
	cat $(SQL_PARTS:%=src/%.sql) > $@

endif
