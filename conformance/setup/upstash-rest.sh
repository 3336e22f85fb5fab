# Upstash's own clients, which a test runs against the suite's endpoint. They stay inside the checkout.

host=conformance/hosts/upstash-rest
if ! command -v npm >/dev/null 2>&1; then
    say "npm is missing, and with it the test with Upstash's own clients; install it with: sudo apt-get install npm"
else
    npm_packages "$host" "Upstash's clients" "their test"
fi
