// Where the routers of JavaScript send a request. Reads a path from each line, as JSON, and writes the name of the route for each
// router, as a line of JSON: { hono, express, next }.
//
// Each has the routes of `conformance/harness/tests/routers.rs`. Hono and Next.js are given a URL, which has resolved dots and turned
// backslashes around. Express routes by the request line.

import { once } from "node:events";
import { createInterface } from "node:readline";

import express from "express";
import { Hono } from "hono";
import { pathToRegexp } from "next-path-to-regexp";

const ROUTES = {
  login: "/login",
  quoted: "/it's/@me",
  part: "/api/:id/parts/:part",
  api: "/api/:id",
  files: "/files/*",
  tenant: "/:tenant/login",
};

const app = new Hono();
const router = express.Router();
const matchers = [];
for (const [name, path] of Object.entries(ROUTES)) {
  app.all(path, (context) => context.text(name));
  router.all(path.replace("*", "*rest"), (request) => (request.route_ = name));
  // As Next.js compiles the matcher of a middleware.
  matchers.push([name, pathToRegexp(path.replace("*", ":rest*"), [], { strict: true, sensitive: false, delimiter: "/" })]);
}
app.notFound((context) => context.text("", 404));

for await (const line of createInterface({ input: process.stdin })) {
  const path = JSON.parse(line);
  const request = { url: path, method: "GET" };
  router(request, {}, () => {});
  const url = parsed(path);
  const hono = url ? await (await app.fetch(new Request(url))).text() : "";
  const next = url ? (matchers.find(([, regexp]) => regexp.test(url.pathname))?.[0] ?? "") : "";
  const written = process.stdout.write(`${JSON.stringify({ hono, express: request.route_ ?? "", next })}\n`);
  if (!written) await once(process.stdout, "drain");
}

function parsed(path) {
  try {
    return new URL(`http://localhost${path}`);
  } catch {
    return undefined;
  }
}
