# shellcheck shell=sh
# Programs that only tests need: openssl for certificates, Python for a server, a browser for the report, and Upstash's own
# clients to test the suite's endpoint.

need python3 python3 "the test of the server in fixtures/README.md"
need openssl openssl "the tests over TLS"
need chromium chromium "the tests of report.html"
need chromedriver chromium-driver "the tests of report.html"
npm_packages conformance/hosts/upstash-rest "Upstash's clients" "their tests"
