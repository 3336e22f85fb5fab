// The two packages in an app of their framework, by the options of a case.

import { once } from "node:events";
import express from "express";
import { MemoryStore, rateLimit } from "express-rate-limit";
import { Hono } from "hono";
import { rateLimiter, MemoryStore as HonoMemoryStore } from "hono-rate-limiter";

const TEXT = "Hi there!";
/** The address of a case's client, if a request names no key. */
export const CLIENT = "anyone";
const propertyOf = ({ requestPropertyName = "rateLimit" }) => requestPropertyName;

/** Each package: its own store, and an app whose limiters have these options and stores. An app has `send`, `resetKey` and `getKey`. */
export const PACKAGES = {
  "express-rate-limit": {
    own: () => new MemoryStore(),
    async app(limiters, clock) {
      const middlewares = limiters.map(({ options, store }) => {
        const { key, answers, succeeds, policyLimit: _, ...rest } = options;
        return rateLimit({
          validate: false,
          ...rest,
          store,
          keyGenerator: (request) => key ?? request.query.key ?? CLIENT,
          ...(answers && { handler: (_request, response) => response.status(answers[0]).end(answers[1]) }),
          ...(succeeds && { requestWasSuccessful: (_request, response) => succeeds(response.statusCode) }),
        });
      });
      const app = express();
      app.use(...middlewares);
      const told = (request) => JSON.stringify(Object.fromEntries(limiters.map(({ options }) => [propertyOf(options), request[propertyOf(options)]])));
      app.get("/", (request, response) => response.set("x-told", told(request)).send(TEXT));
      app.get("/error", (_request, response) => response.status(400).send("Error!"));
      app.get("/slow", (_request, response) => (clock.tick(75), response.send(TEXT)));
      app.get("/crash", () => {
        throw new Error("Oops!");
      });
      // With the usual number of parameters, Express knows that it takes errors.
      app.use((_error, _request, response, _next) => response.status(500).send("Oops!"));
      const server = app.listen(0, "127.0.0.1");
      await once(server, "listening");
      return {
        send: (target) => fetch(`http://127.0.0.1:${server.address().port}${target}`),
        resetKey: (key) => middlewares[0].resetKey(key),
        getKey: (key) => middlewares[0].getKey(key),
        close: () => (server.closeAllConnections(), server.close()),
      };
    },
  },
  "hono-rate-limiter": {
    own: () => new HonoMemoryStore(),
    async app(limiters, clock) {
      const app = new Hono();
      for (const { options, store } of limiters) {
        const { key, answers, succeeds, policyLimit: _, ...rest } = options;
        const handler = (context) => context.text(answers[1], answers[0]);
        app.use(
          rateLimiter({
            ...rest,
            store,
            keyGenerator: (context) => key ?? context.req.query("key") ?? CLIENT,
            ...(answers && { handler }),
            ...(succeeds && { requestWasSuccessful: (context) => succeeds(context.res.status) }),
          }),
        );
      }
      const told = (context) => JSON.stringify(Object.fromEntries(limiters.map(({ options }) => [propertyOf(options), context.get(propertyOf(options))])));
      app.get("/", (context) => context.text(TEXT, 200, { "x-told": told(context) }));
      app.get("/error", (context) => context.text("Error!", 400));
      app.get("/slow", (context) => (clock.tick(75), context.text(TEXT)));
      app.get("/crash", () => {
        throw new Error("Oops!");
      });
      app.onError((_error, context) => context.text("Oops!", 500));
      const [{ store }] = limiters;
      return { send: (target) => app.request(target), resetKey: (key) => store.resetKey(key), getKey: (key) => store.get(key), close() {} };
    },
  },
};
