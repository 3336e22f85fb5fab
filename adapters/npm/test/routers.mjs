// Servers of the frameworks for Node.js, with the same routes and a gate in front, and what a test of them needs.
//
// A route is a name and a path, as a rule has it. The middleware gets `limited(mount)`; a handler answers with the route's name.

import { once } from "node:events";
import http from "node:http";
import { createRequire } from "node:module";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import { limit as limitHono } from "@tidegate/edge/hono";
import { Random, targetOf } from "./targets.mjs";

const require = createRequire(import.meta.url);

/** The routes of each server by the path in which a router is mounted, and the path there. */
const ROUTES = [
  { name: "login", mount: "", path: "/login" },
  { name: "tenant", mount: "", path: "/{tenant}/search" },
  { name: "upper", mount: "", path: "/Admin/Users" },
  { name: "cafe", mount: "", path: "/café" },
  { name: "file", mount: "", path: "/files/{name}/raw" },
  { name: "api-login", mount: "/api", path: "/login" },
  { name: "user", mount: "/api", path: "/users/{id}" },
  { name: "key", mount: "/api/v1", path: "/keys" },
  { name: "root", mount: "", path: "/" },
];

/** A gate that denies nothing, and names in a response all limits that it charged. `end` is what the rules' paths end with. */
function gateOf(end = "") {
  const limits = ROUTES.map(({ name }) => [name, { quotas: [{ algorithm: "fixed_window", limit: 1_000_000_000, window_ms: 86_400_000, name }] }]);
  const rules = ROUTES.map(({ name, mount, path }) => ({ path: mount + path + end, limits: [name] }));
  return Gate.fromRules({ limits: Object.fromEntries(limits), rules }, { platform: "direct", onError() {}, stores: { default: (limit) => new Tidegate(limit) } });
}

const inOrder = (mount) => ROUTES.filter((route) => route.mount === mount);
const withColon = (path) => path.replace(/\{(\w+)\}/g, ":$1");
const answer = (name) => (_req, res) => {
  res.setHeader("x-route", name);
  res.end();
};

/** Express and its routers. `mountsGate` puts the gate behind a mount, and before the handlers of each route. */
function expressOf(name, mountsGate) {
  const express = require(name);
  // It prints the errors of a request otherwise.
  const app = express().set("env", "test");
  const gate = limit(gateOf());
  const routed = (router, mount, ...before) => {
    for (const { name, path } of inOrder(mount)) router.get(withColon(path), ...before, answer(name));
    return router;
  };
  app.use(mountsGate ? "/api" : "/", gate);
  const api = express.Router().use("/v1", routed(express.Router(), "/api/v1"));
  app.use("/api", routed(api, "/api"));
  routed(app, "", ...(mountsGate ? [gate] : []));
  return http.createServer(app);
}

function connectOf() {
  const app = require("connect")();
  // A mount is all that is below it, and so are the rules.
  const gate = limit(gateOf("/*"));
  for (const { name, mount, path } of ROUTES) if (!path.includes("{") && path !== "/") app.use(mount + path, gate).use(mount + path, answer(name));
  return http.createServer((req, res) => {
    try {
      app(req, res);
    } catch {
      // Connect throws for a URL that Node.js cannot parse.
      res.writeHead(400).end();
    }
  });
}

function polkaOf() {
  const polka = require("polka");
  const routed = (app, mount) => {
    for (const { name, path } of inOrder(mount)) app.get(withColon(path), answer(name));
    return app;
  };
  const gate = limit(gateOf());
  const app = routed(polka(), "").use(gate).use("/api", routed(polka(), "/api").use(gate));
  return http.createServer(app.handler);
}

async function fastifyOf(name) {
  const app = require(name)();
  const gate = gateOf();
  app.addHook("onRequest", async (req, reply) => {
    const request = new Request("http://localhost", { headers: { host: "localhost" } });
    const { headers, http } = await gate.check(request, { target: req.originalUrl, method: req.method, framework: "fastify", peer: req.ip });
    reply.headers(headers);
    if (http) return reply.code(http.status).send(http.body);
  });
  const routed = (mount) => async (scope) => {
    for (const { name, path } of inOrder(mount)) scope.get(withColon(path), async (_req, reply) => reply.header("x-route", name).send());
  };
  app.register(routed(""));
  app.register(async (scope) => {
    scope.register(routed("/api"));
    scope.register(routed("/api/v1"), { prefix: "/v1" });
  }, { prefix: "/api" });
  await app.ready();
  return app.server;
}

function koaOf() {
  const [Koa, { Router }] = [require("koa"), require("@koa/router")];
  const app = new Koa();
  const gate = gateOf();
  app.silent = true;
  app.use(async (ctx, next) => {
    const request = new Request("http://localhost", { headers: { host: "localhost" } });
    const { headers, http } = await gate.check(request, { target: ctx.originalUrl, method: ctx.method, framework: "koa", peer: ctx.ip });
    ctx.set(headers);
    if (!http) return next();
    [ctx.status, ctx.body] = [http.status, http.body];
  });
  for (const mount of ["/api/v1", "/api", ""]) {
    const router = new Router({ prefix: mount });
    for (const { name, path } of inOrder(mount)) {
      router.get(withColon(path), (ctx) => {
        ctx.set("x-route", name);
        ctx.body = "";
      });
    }
    app.use(router.routes());
  }
  return http.createServer(app.callback());
}

async function honoOf(isMounted) {
  const [{ Hono }, { getRequestListener }] = await Promise.all([import("hono"), import("@hono/node-server")]);
  const gate = gateOf();
  const peer = () => "127.0.0.1";
  const handler = (name) => (context) => context.body("", 200, { "x-route": name });
  const routed = (app, mount) => {
    for (const { name, path } of inOrder(mount)) app.get(withColon(path), handler(name));
    return app;
  };
  const app = new Hono();
  const api = new Hono();
  if (isMounted) api.use(limitHono(gate, { peer }));
  else app.use(limitHono(gate, { peer }));
  api.route("/v1", routed(new Hono(), "/api/v1"));
  routed(api, "/api");
  if (isMounted) {
    app.mount("/api", api.fetch);
    app.use(limitHono(gate, { peer }));
  } else {
    app.route("/api", api);
  }
  routed(app, "");
  return http.createServer(getRequestListener(app.fetch));
}

/** The servers by their names. */
export const SERVERS = {
  "Express 5": () => expressOf("express", false),
  "Express 5, the gate behind mounts": () => expressOf("express", true),
  "Express 4": () => expressOf("express-4", false),
  "Express 4, the gate behind mounts": () => expressOf("express-4", true),
  Connect: connectOf,
  Polka: polkaOf,
  "Fastify 5": () => fastifyOf("fastify"),
  "Fastify 4": () => fastifyOf("fastify-4"),
  Koa: koaOf,
  Hono: () => honoOf(false),
  "Hono, the gate in a mounted app": () => honoOf(true),
};

/**
 * Sends a server so many generated request targets. Returns how many reached a route, by the route, and those that were not charged to
 * the route's rule.
 */
export async function attacked(server, seed, count) {
  if (!server.listening) server.listen(0, "127.0.0.1");
  if (!server.listening) await once(server, "listening");
  const { port } = server.address();
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const random = new Random(seed);
  const [reached, uncharged] = [{}, []];
  const one = async () => {
    const { mount, path } = random.of(ROUTES);
    const target = targetOf(random, mount + path);
    const { status, headers } = await sent(port, target, agent);
    const route = headers["x-route"];
    if (route === undefined) return;
    reached[route] = (reached[route] ?? 0) + 1;
    const charged = (headers["ratelimit-policy"] ?? "").includes(`"${route}"`);
    if (!charged) uncharged.push(`${route}: ${JSON.stringify(target)} (${status})`);
  };
  let rest = count;
  const worker = async () => {
    while (rest-- > 0) await one();
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  agent.destroy();
  server.closeAllConnections();
  server.close();
  return { reached, uncharged };
}

/** A request with this target, byte for byte. A connection that the server closes is no answer. */
function sent(port, path, agent) {
  return new Promise((resolve) => {
    const request = http.request({ host: "127.0.0.1", port, path, agent, headers: { host: "localhost" } }, (response) => {
      response.resume();
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers }));
      response.on("error", () => resolve({ status: 0, headers: {} }));
    });
    request.on("error", () => resolve({ status: 0, headers: {} }));
    request.end();
  });
}
