# shellcheck shell=sh
# The targets redis, redis-cluster and upstash-rest, and all others that count in Redis.

need redis-server redis-server "the targets on Redis and their tests"
need redis-cli redis-tools "the targets on Redis and their tests"
