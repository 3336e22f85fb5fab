# shellcheck shell=sh
# What only tests need: openssl for certificates, and Upstash's own clients, which run against the suite's endpoint.

need openssl openssl "the tests over TLS"
npm_packages conformance/hosts/upstash-rest "Upstash's clients" "their tests"
