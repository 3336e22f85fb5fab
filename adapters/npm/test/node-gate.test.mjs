// A gate as middleware of Node.js: its rules match the request target as the server received it.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import express from "express";

let named = 0;

/** A gate that admits one request of those that have one of the paths. */
function gateOf(...rules) {
  const name = `one-${(named += 1)}`;
  const limits = { [name]: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 86_400_000 }] } };
  const limited = rules.map((rule) => ({ ...(typeof rule === "string" ? { path: rule } : rule), limits: [name] }));
  return Gate.fromRules({ limits, rules: limited }, { platform: "direct", stores: { default: (limit) => new Tidegate(limit) } });
}

async function served(t, app, of = http) {
  const server = of.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => (server.closeAllConnections?.(), server.close()));
  return server.address().port;
}

/** The status of a request with this target, byte for byte. */
async function status(port, path, method = "GET") {
  const [response] = await once(http.request({ host: "127.0.0.1", port, path, method }).end(), "response");
  response.resume();
  return response.statusCode;
}

const hello = (_req, res) => void res.end("hello");

test("behind a mount, the rules match the whole path", async (t) => {
  const app = express();
  app.use("/api", limit(gateOf("/api/login", "/api/users/*")));
  app.use(hello);
  const port = await served(t, app);
  for (const path of ["/api/login", "/api/users/7"]) assert.deepEqual([await status(port, path), await status(port, path)], [path === "/api/login" ? 200 : 429, 429]);
  assert.deepEqual([await status(port, "/api/other"), await status(port, "/login"), await status(port, "/login")], [200, 200, 200]);
});

test("dots, backslashes and escapes reach the gate as they were sent", async (t) => {
  for (const target of ["/../search", "/%2e%2e/search", "/%2e/search", "/./search", "/\\acme/search", "http://localhost/acme/search"]) {
    const app = express();
    app.use(limit(gateOf("/{tenant}/search")));
    app.get("/:tenant/search", hello);
    const port = await served(t, app);
    assert.deepEqual([await status(port, target), await status(port, target)], [200, 429], target);
  }
});

test("rules ignore case as Express does, unless its router does not", async (t) => {
  const statuses = async (options) => {
    const app = express();
    app.use(limit(gateOf("/login"), options)).use(hello);
    const port = await served(t, app);
    return [await status(port, "/LOGIN"), await status(port, "/login"), await status(port, "/LogIn")];
  };
  assert.deepEqual(await statuses(), [200, 429, 429]);
  assert.deepEqual(await statuses({ ignoreCase: false }), [200, 200, 200]);
  assert.deepEqual(await statuses({ check: () => ({ ignoreCase: false }) }), [200, 200, 200]);
});

test("the rules of a path before and after rewriting apply", async (t) => {
  const app = express();
  app.use((req, _res, next) => ((req.url = req.url.replace("/old/", "/new/")), next()));
  app.use(limit(gateOf("/new/login"))).use(hello);
  const port = await served(t, app);
  assert.deepEqual([await status(port, "/old/login"), await status(port, "/old/login"), await status(port, "http://localhost/old/login")], [200, 429, 429]);
});

test("a target that servers read in different ways is a 400, also where no rule is for it", async (t) => {
  const app = express();
  app.use(limit(gateOf("/login"))).use(hello);
  const port = await served(t, app);
  for (const target of ["http://a,b/login", "foo://localhost/login", "http://a%2flogin"]) assert.equal(await status(port, target), 400, target);
  assert.deepEqual([await status(port, "*", "OPTIONS"), await status(port, "//"), await status(port, "http://localhost")], [200, 200, 200]);
});

test("over HTTP/2, a method counts in upper case, and double slashes as one", async (t) => {
  const middleware = limit(gateOf({ path: "/login", methods: ["POST"] }));
  const port = await served(t, (req, res) => middleware(req, res, () => res.end()), http2);
  const session = http2.connect(`http://127.0.0.1:${port}`);
  t.after(() => session.destroy());
  const send = async (path, method) => {
    const [headers] = await once(session.request({ ":path": path, ":method": method }).end(), "response");
    return headers[":status"];
  };
  assert.deepEqual([await send("//login", "post"), await send("/login", "POST")], [200, 429]);
});

test("a method that no Request has is that of a rule", async (t) => {
  const app = express();
  app.use(limit(gateOf({ path: "/*", methods: ["TRACE"] }))).use(hello);
  const port = await served(t, app);
  assert.deepEqual([await status(port, "/", "TRACE"), await status(port, "/", "TRACE"), await status(port, "/")], [200, 429, 200]);
});

test("check: a target is a path, a URL or *, and several are all matched", async () => {
  const gate = gateOf("/login");
  const outcome = async (target) => (await gate.check(new Request("http://localhost/"), { peer: "192.0.2.1", target })).outcome;
  assert.deepEqual([await outcome("/other"), await outcome(["/other", "/login"]), await outcome("/login?x")], ["unlimited", "allowed", "denied"]);
  for (const target of ["", "login", [], ["/login", 7], "javascript://x/login", "http://"]) assert.equal(await outcome(target), "failed_closed", JSON.stringify(target));
  const { error } = await gate.check(new Request("http://localhost/login"), { framework: "expres" });
  assert.match(error.message, /framework: unknown value "expres"; did you mean "express"\?/);
});
