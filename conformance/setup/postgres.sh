# shellcheck shell=sh
# The targets on PostgreSQL, and the tests of its adapter.

# Debian keeps the server's programs off the path, and a pooler's where only root's leads.
has_postgres() { has postgres || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; }
has_pgbouncer() { has pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

if has_postgres; then
    say "postgres: $(command -v postgres || ls -d /usr/lib/postgresql/*/bin/postgres)"
elif apt_install postgresql && has_postgres; then
    say "postgres: installed from the package postgresql"
else
    say "postgres is missing, but the target on PostgreSQL and its tests need it; install it with: sudo apt-get install postgresql"
fi

if has_pgbouncer; then
    say "pgbouncer: $(command -v pgbouncer || echo /usr/sbin/pgbouncer)"
elif apt_install pgbouncer && has_pgbouncer; then
    say "pgbouncer: installed from the package pgbouncer"
else
    say "pgbouncer is missing, but the tests behind a pooler need it; install it with: sudo apt-get install pgbouncer"
fi
