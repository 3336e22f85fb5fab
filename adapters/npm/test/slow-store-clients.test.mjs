// A store that is slow and answers each call before the deadline, behind real servers: whatever clients do on their sockets, no request passes
// because of a failure, and no key runs the handler more often than its limit.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Gate } from "@tidegate/edge/gate";
import { limit as limitHono } from "@tidegate/edge/hono";
import { limit } from "@tidegate/edge/node";
import { inTime, isOpen, OPTIONS, PERCENTS, slowStore } from "./slow-stores.mjs";

const require = createRequire(import.meta.url);

const LIMIT = 12;

/** How many requests each client sends to a fast store, and to a slow one. */
const [QUICK, SLOW] = [6, 24];

/** Of a request, with the padding of huge headers. */
const HEADERS_MAX_BYTES = 65_536;
const PADDING = `x-padding: ${"x".repeat(30_000)}\r\n`;

/** How clients send their requests. Several at once of each. */
const BEHAVIOURS = ["one hot key", "many keys", "aborted", "slow bodies", "huge headers"];

/** What a framework's request has, by the fields that the test sends. */
const optionsOf = (more, fieldOf) => ({ key: fieldOf("x-key"), ...more(fieldOf("x-nth")) });

/** Each makes a server whose requests are limited, and whose handler says that it runs and reads the body. */
const SERVERS = {
  Express(decider, more, ran) {
    const app = require("express")().set("env", "test");
    app.use(limit(decider, { check: (req) => optionsOf(more, (name) => req.headers[name]) }));
    app.post("/", async (req, res) => {
      ran(req.headers["x-key"]);
      for await (const _ of req);
      res.send("hello");
    });
    return http.createServer({ maxHeaderSize: HEADERS_MAX_BYTES }, app);
  },

  async Fastify(decider, more, ran) {
    const app = require("fastify")({ http: { maxHeaderSize: HEADERS_MAX_BYTES } });
    app.addHook("onRequest", async (req, reply) => {
      const routing = decider instanceof Gate ? { target: req.originalUrl, method: req.method, framework: "fastify" } : {};
      const { headers, http } = await decider.check(new Request("http://localhost"), { ...routing, ...optionsOf(more, (name) => req.headers[name]) });
      reply.headers(headers);
      if (http) return reply.code(http.status).send(http.body);
    });
    app.post("/", async (req) => {
      ran(req.headers["x-key"]);
      return "hello";
    });
    await app.ready();
    return app.server;
  },

  async Hono(decider, more, ran) {
    const [{ Hono }, { getRequestListener }] = await Promise.all([import("hono"), import("@hono/node-server")]);
    const app = new Hono();
    app.use(limitHono(decider, { check: (request) => optionsOf(more, (name) => request.headers.get(name)) }));
    app.post("/", async (context) => {
      ran(context.req.header("x-key"));
      await context.req.text();
      return context.text("hello");
    });
    return http.createServer({ maxHeaderSize: HEADERS_MAX_BYTES }, getRequestListener(app.fetch));
  },
};

/** Sends a request as such a client does, and returns the status of its response. Undefined if it is aborted. */
async function ask(port, how, key, nth) {
  const body = how === "slow bodies" ? 10 : 0;
  const socket = connect(port, "127.0.0.1").on("error", () => undefined);
  const fields = `host: localhost\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: ${body}\r\nx-key: ${key}\r\nx-nth: ${how} ${nth}\r\n`;
  socket.write(`POST / HTTP/1.1\r\n${fields}${how === "huge headers" ? PADDING : ""}\r\n`);
  if (how === "aborted" && nth % 3 !== 0) {
    await sleep(20 * (nth % 7));
    socket.resetAndDestroy();
    return undefined;
  }
  let response = "";
  socket.setEncoding("latin1").on("data", (text) => (response += text));
  const closed = once(socket, "close");
  for (let byte = 0; byte < body; byte++) {
    // A response to a request that is denied may come before its body was sent.
    await sleep(50);
    if (socket.writable) socket.write("x");
  }
  await closed;
  return response.slice("HTTP/1.1 ".length, "HTTP/1.1 ".length + 3);
}

/** Plays all clients at once. Returns what was opened, how often each key ran the handler, and the other answers that were none of a limit. */
async function played(name, framework, percent, prefix) {
  const store = await slowStore(percent);
  const { decider, more } = store.with(name, prefix, LIMIT);
  const [opened, others, ran] = [[], [], {}];
  // A client that has gone sees no answer, so this is where decisions are seen.
  const check = decider.check.bind(decider);
  decider.check = async (request, options) => {
    const verdict = await check(request, options);
    if (isOpen(verdict)) opened.push(`${options.key}: ${verdict.error}`);
    return verdict;
  };
  const server = await SERVERS[framework](decider, more, (key) => (ran[key] = (ran[key] ?? 0) + 1));
  server.listen(0, "127.0.0.1");
  if (!server.listening) await once(server, "listening");
  const { port } = server.address();
  const one = async (how, nth) => {
    const status = await ask(port, how, `${how}:${how === "many keys" ? nth % 2 : 0}`.replaceAll(" ", "-"), nth);
    if (![undefined, "200", "429"].includes(status)) others.push(`${how} ${nth}: ${status}`);
  };
  await ask(port, "first", "first", 0);
  // The first leases are not slow.
  store.quick();
  await Promise.all(BEHAVIOURS.map(async (how) => {
    for (let nth = 0; nth < QUICK; nth++) await one(how, nth);
  }));
  store.slow();
  await Promise.all(BEHAVIOURS.map(async (how) => {
    const asked = [];
    for (let nth = QUICK; nth < QUICK + SLOW; nth++) {
      asked.push(one(how, nth));
      if (nth % 3 === 2) await sleep(50);
    }
    await Promise.all(asked);
  }));
  server.closeAllConnections();
  server.close();
  return { opened, others, ran };
}

// Each takes some seconds, of which the process works for a few milliseconds. Each option meets each framework at one speed.
describe("a slow store that answers in time, behind a server", { concurrency: 6 }, () => {
  for (const [place, percent] of PERCENTS.entries()) {
    for (const [nth, name] of OPTIONS.entries()) {
      const framework = Object.keys(SERVERS)[(place + nth) % 3];
      test(`${name}, ${framework}, ${percent} % of the deadline`, async () => {
        const { opened, others, ran } = await inTime((nth) => played(name, framework, percent, `clients-${percent}-${nth}`));
        assert.deepEqual(opened, []);
        assert.deepEqual(others, []);
        delete ran.first;
        const keys = Object.keys(ran);
        assert.equal(keys.length, BEHAVIOURS.length + 1, JSON.stringify(ran));
        for (const key of keys) assert.ok(ran[key] <= LIMIT, `${key}: ${ran[key]} of ${LIMIT}`);
      });
    }
  }
});
