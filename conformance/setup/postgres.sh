# shellcheck shell=sh
# The targets on PostgreSQL, and the tests of its adapter.

# Debian keeps the server's programs off the path.
has_postgres() { has postgres || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; }

if has_postgres; then
    say "postgres: $(command -v postgres || ls -d /usr/lib/postgresql/*/bin/postgres)"
elif apt_install postgresql && has_postgres; then
    say "postgres: installed from the package postgresql"
else
    say "postgres is missing, but the target on PostgreSQL and its tests need it; install it with: sudo apt-get install postgresql"
fi
