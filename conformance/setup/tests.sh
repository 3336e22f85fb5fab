# shellcheck shell=sh
# Programs that only tests need: openssl for certificates, and Upstash's own clients to test the suite's endpoint.

need openssl openssl "the tests over TLS"
npm_packages conformance/hosts/upstash-rest "Upstash's clients" "their tests"
