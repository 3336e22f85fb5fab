// A gate as middleware of Node.js: its rules match the request target as the server received it.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import express from "express";

let named = 0;

/** A gate that admits one request of those that have one of the paths. */
function gateOf(...rules) {
  return gateBy({}, ...rules);
}

function gateBy(file, ...rules) {
  const name = `one-${(named += 1)}`;
  const limits = { [name]: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 86_400_000 }] } };
  const limited = rules.map((rule) => ({ ...(typeof rule === "string" ? { path: rule } : rule), limits: [name] }));
  return Gate.fromRules({ ...file, limits, rules: limited }, { platform: "direct", onError() {}, stores: { default: (limit) => new Tidegate(limit) } });
}

async function served(t, app, of = http) {
  const server = of.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => (server.closeAllConnections?.(), server.close()));
  return server.address().port;
}

/** The status of a request with this target, byte for byte. */
async function status(port, path, method = "GET", headers = {}) {
  const [response] = await once(http.request({ host: "127.0.0.1", port, path, method, headers }).end(), "response");
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
  assert.deepEqual([await status(port, "http://user:password@localhost/login"), await status(port, "/login")], [200, 429]);
  assert.deepEqual([await status(port, "*", "OPTIONS"), await status(port, "//"), await status(port, "http://localhost")], [200, 200, 200]);
});

test("a client cannot write to the log by a target that nobody can read", async (t) => {
  const told = [];
  const tell = (...parts) => void told.push(parts.join(" "));
  for (const level of ["log", "info", "warn", "error"]) t.mock.method(console, level, tell);
  const of = (more) => Gate.fromRules({ limits: { all: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 86_400_000 }] } }, rules: [{ limits: ["all"] }] }, { platform: "direct", stores: { default: (limit) => new Tidegate(limit) }, ...more });
  for (const gate of [of({}), of({ onError: tell })]) {
    const port = await served(t, express().use(limit(gate)).use(hello));
    for (const target of ["http://a,b/login", "foo://localhost/login", `/${"%2f".repeat(2_000)}`]) assert.equal(await status(port, target), 400);
    assert.deepEqual(told, []);
    // The mistakes of an application are told as before.
    const { error, response } = await gate.check(new Request("http://localhost"), { target: 7 });
    assert.deepEqual([error.kind, response.status, told.splice(0).length], ["invalid", 400, 1]);
  }
  const { error } = await of({}).check(new Request("http://localhost"), { target: "foo://localhost/login" });
  assert.match(error.message, /^target: neither a path/);
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
  // What each server reads in another way takes time for each way. A client chooses how long it is.
  const [short, long] = [256, 2_048].map((length) => "/%2e".repeat(length / 4));
  assert.deepEqual([await outcome(`${short}/login`), await outcome(`${long}/login`), await outcome(`/${"a".repeat(9_000)}`)], ["denied", "failed_closed", "unlimited"]);
  const { error } = await gate.check(new Request("http://localhost/login"), { framework: "expres" });
  assert.match(error.message, /framework: unknown value "expres"; did you mean "express"\?/);
});

test("a preflight is exempt by an option, and only from rules that are not for OPTIONS", async (t) => {
  const preflight = { origin: "https://example.com", "access-control-request-method": "POST" };
  const statuses = async (file, rule, headers) => {
    const app = express();
    app.use(limit(gateBy(file, rule))).use(hello);
    const port = await served(t, app);
    return [await status(port, "/login", "OPTIONS", headers), await status(port, "/login", "OPTIONS", headers)];
  };
  const exempting = { exempt_preflights: true };
  assert.deepEqual(await statuses({}, "/login", preflight), [200, 429]);
  assert.deepEqual(await statuses(exempting, "/login", preflight), [200, 200]);
  assert.deepEqual(await statuses(exempting, { path: "/login", methods: ["OPTIONS"] }, preflight), [200, 429]);
  for (const field of Object.keys(preflight)) assert.deepEqual(await statuses(exempting, "/login", { [field]: preflight[field] }), [200, 429]);
});

test("HEAD, prefetching and an overridden method count for the rule of their route", async (t) => {
  const app = express();
  app.use((req, _res, next) => ((req.method = req.get("x-http-method-override") ?? req.method), next()));
  app.use(limit(gateOf({ path: "/login", methods: ["GET", "DELETE"] }))).use(hello);
  const port = await served(t, app);
  const sent = [["HEAD"], ["GET", { purpose: "prefetch", "sec-purpose": "prefetch" }], ["POST", { "x-http-method-override": "DELETE" }], ["POST"]];
  const statuses = [];
  for (const [method, headers] of sent) statuses.push(await status(port, "/login", method, headers));
  assert.deepEqual(statuses, [200, 429, 429, 200]);
});

test("CONNECT and upgrades reach no middleware, and a handler of upgrades can ask the gate", async (t) => {
  const gate = gateOf("/chat");
  const app = express();
  let ran = 0;
  app.use((_req, _res, next) => ((ran += 1), next()));
  const server = http.createServer(app);
  server.on("upgrade", async (req, socket) => {
    const verdict = await gate.check(new Request("http://localhost", { headers: { host: "localhost" } }), { target: req.url, peer: "192.0.2.1" });
    socket.end(`HTTP/1.1 ${verdict.response?.status ?? 101} x\r\n\r\n`);
  });
  server.on("connect", (_req, socket) => socket.end("HTTP/1.1 405 x\r\n\r\n"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => (server.closeAllConnections(), server.close()));
  const send = (line, fields) =>
    new Promise((resolve) => {
      const socket = net.connect(server.address().port, "127.0.0.1", () => socket.write(`${line} HTTP/1.1\r\nhost: x\r\n${fields}\r\n`));
      socket.once("data", (data) => (socket.destroy(), resolve(String(data).slice(9, 12))));
    });
  const upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
  assert.deepEqual([await send("GET /x/../chat", upgrade), await send("GET http://x//chat", upgrade), await send("CONNECT x:80", "")], ["101", "429", "405"]);
  assert.equal(ran, 0);
});
