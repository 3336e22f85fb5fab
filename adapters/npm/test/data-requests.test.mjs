// Requests for the data of a page have the page's rule. `cargo make frameworks` sends them to the frameworks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/memory";
import { limit as next } from "@tidegate/edge/next";
import { limit as reactRouter, limitRoute } from "@tidegate/edge/react-router";
import { limit as svelteKit } from "@tidegate/edge/sveltekit";

const PAGES = ["/", "/account", "/shop/{item}", "/page.html", "/_actions/login", "/café"];

let named = 0;
const gateOf = () => {
  const limits = PAGES.map((page) => [`limit-${(named += 1)}`, page]);
  const quotas = [{ algorithm: "fixed_window", limit: 100, window_ms: 86_400_000 }];
  const rules = limits.map(([name, path]) => ({ path, limits: [name] }));
  return Gate.fromRules({ limits: Object.fromEntries(limits.map(([name]) => [name, { quotas }])), rules }, { platform: "direct", stores: { default: (limit) => new Tidegate(limit) } });
};

const cases = {
  next: [
    ["/_next/data/build-7/account.json", "/account"],
    ["/_next/data/b/index.json?x=y", "/"],
    ["/base/_next/data/b/account.json", undefined],
    ["/account.rsc", "/account"],
    ["/shop/7.prefetch.rsc", "/shop/{item}"],
    ["/account.segments/_tree.segment.rsc", "/account"],
    ["/index.rsc", "/"],
    ["/_next/%64ata/b/account.json", "/account"],
  ],
  sveltekit: [
    ["/account/__data.json", "/account"],
    ["/account/__data.json?x-sveltekit-invalidated=01", "/account"],
    ["/__data.json", "/"],
    ["/page.html__data.json", "/page.html"],
    ["/shop/a%2fb/__data.json", "/shop/{item}"],
    ["/%61ccount/__d%61ta.json", "/account"],
    ["/account//__data.json", "/account"],
  ],
  "react-router": [
    ["/account.data", "/account"],
    ["/account.data?_routes=routes%2Faccount", "/account"],
    ["/_root.data", "/"],
    ["/account/_.data", "/account"],
    ["/ACCOUNT.data", "/account"],
    ["/account/x/%2e%2e.data", "/account"],
    ["/CAF%C3%89.data", "/café"],
  ],
  nuxt: [
    ["/account/_payload.json", "/account"],
    ["/_payload.json?hash", "/"],
    ["/shop/7/_payload.js", "/shop/{item}"],
    ["/Account", "/account"],
    // Nitro decodes a path before it looks for its end, and Vue Router ends one at `#`, too.
    ["/account%3f", "/account"],
    ["/account%3Fx=/login", "/account"],
    ["/shop/7%3fx/y", "/shop/{item}"],
    ["/shop/7%23x/y", "/shop/{item}"],
    ["/account/_payload.json%3fx", "/account"],
    ["/account%23x%3fy", "/account"],
    ["/account%253f", undefined],
  ],
  astro: [
    ["/?_action=login", "/_actions/login"],
    ["/account?x=y&_action=%6cogin", "/_actions/login"],
    ["/account.html", "/account"],
    ["/account/index.html", "/account"],
    ["/%256163count", undefined],
    ["/%2561ccount", "/account"],
    ["/%25%32%35%36%31ccount", "/account"],
  ],
  fastify: [["/account;x=y", "/account"], ["/shop/", "/shop/{item}"]],
  connect: [["/account.x", undefined], ["/shop//", "/shop/{item}"]],
};

/** What a request of a middleware is charged to: the names of its limits, as the pages of their rules. */
async function charged(send) {
  const { headers } = await send(gateOf());
  return [...(new Headers(headers).get("ratelimit-policy") ?? "").matchAll(/limit-(\d+)/g)].map(([, nth]) => PAGES[(Number(nth) - 1) % PAGES.length]);
}
const app = () => new Response("hello");
const peer = () => ({ peer: "192.0.2.1" });

test("each form of a page has the page's rule, also beside others", async () => {
  const request = new Request("https://example.com/none");
  for (const [framework, paths] of Object.entries(cases)) {
    for (const [target, expected] of paths) {
      const pages = await charged((gate) => gate.check(request, { framework, target, ...peer() }));
      assert.ok(expected ? pages.includes(expected) : pages.length === 0, `${framework} ${target}: ${pages}`);
    }
  }
});

test("SvelteKit: a request for data, and a route to which reroute leads", async () => {
  const event = (path, id, params) => ({ request: new Request(`https://example.com${path}`), getClientAddress: () => "192.0.2.1", route: { id }, params });
  const of = (...given) => charged((gate) => svelteKit(gate)({ event: event(...given), resolve: app }));
  assert.deepEqual(await of("/account/__data.json", "/account", {}), ["/account"]);
  assert.deepEqual(await of("/de/konto", "/(app)/account", {}), ["/account"]);
  assert.deepEqual(await of("/laden/7", "/shop/[item=name]", { item: "7" }), ["/shop/{item}"]);
  assert.deepEqual(await of("/x", "/[[lang]]/shop/[...rest]", { lang: undefined, rest: "a" }), ["/shop/{item}"]);
  assert.deepEqual(await of("/x", null, {}), []);
});

test("React Router: a request for data, of a handler and of a route", async () => {
  const request = () => new Request("https://example.com/Account.data");
  assert.deepEqual(await charged((gate) => reactRouter(gate, app, { check: peer })(request())), ["/account"]);
  assert.deepEqual(await charged((gate) => limitRoute(gate, { check: peer })({ request: request() }, app)), ["/account"]);
  assert.deepEqual(await charged((gate) => reactRouter(gate, app, { check: peer, ignoreCase: false })(request())), []);
});

test("Next.js: a page with a base path or a locale, and its data", async () => {
  const request = (path, pathname) => Object.assign(new Request(`https://example.com${path}`), pathname && { nextUrl: { pathname } });
  const of = (...given) => charged((gate) => next(gate, { check: peer })(request(...given)));
  assert.deepEqual(await of("/base/de/account", "/account"), ["/account"]);
  assert.deepEqual(await of("/_next/data/b/account.json"), ["/account"]);
});
