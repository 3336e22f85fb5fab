# shellcheck shell=sh
# The rate limiters of others, for `tidegate-dev peers`.

need redis-server redis-server "the peers on Redis"
need redis-cli redis-tools "the peers on Redis"
need faketime faketime "the peers on Redis"
npm_packages conformance/peers "the peers from npm" "tidegate-dev peers"
npm_packages conformance/hosts/cloudflare workerd "the peers on Cloudflare"
