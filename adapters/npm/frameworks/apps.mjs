// The apps of `cargo make frameworks`, in `examples/<name>` or `examples/<from>`.
//
// `version` is the package whose version the table shows. `env` is set for all steps, and `serve` starts the app. `requests` sends
// the app its requests and checks the answers. `routes` puts the files of `routes/<from>` in place of the example's.

import { answersMessages, admitsTwo, settles } from "./requests.mjs";
import { charges } from "./routes.mjs";

const PAGES = ["/api/hello", "/page"];

export const APPS = {
  "next-proxy": { framework: "Next.js, proxy.ts", version: "next", runtime: "Node.js", paths: [...PAGES, "/api/render"] },
  "next-proxy-routes": { framework: "Next.js, routes", version: "next", runtime: "Node.js", from: "next-proxy", paths: [""], routes: true, requests: charges },
  "next-middleware": { framework: "Next.js, middleware.ts", version: "next", runtime: "edge", paths: PAGES },
  sveltekit: { framework: "SvelteKit", version: "@sveltejs/kit", runtime: "Node.js", paths: PAGES },
  "sveltekit-routes": { framework: "SvelteKit, routes", version: "@sveltejs/kit", runtime: "Node.js", from: "sveltekit", paths: [""], routes: true, requests: charges },
  "react-router-7": { framework: "React Router, middleware", version: "react-router", runtime: "Node.js", paths: PAGES },
  "react-router-7-routes": { framework: "React Router, routes", version: "react-router", runtime: "Node.js", from: "react-router-7", paths: [""], routes: true, requests: charges },
  "react-router-8": { framework: "React Router, handler", version: "react-router", runtime: "Node.js", paths: PAGES },
  "hono-node": { framework: "Hono", version: "hono", runtime: "Node.js" },
  "hono-bun": { framework: "Hono", version: "hono", runtime: "Bun" },
  "hono-workers": { framework: "Hono", version: "hono", runtime: "workerd" },
  nuxt: { framework: "Nuxt", version: "nuxt", runtime: "Node.js", paths: PAGES },
  "nuxt-cloudflare": {
    framework: "Nuxt, cloudflare-module",
    version: "nuxt",
    runtime: "workerd",
    paths: PAGES,
    from: "nuxt",
    env: { NITRO_PRESET: "cloudflare-module" },
    serve: "npm run start:cloudflare",
  },
  "nuxt-routes": { framework: "Nuxt, routes", version: "nuxt", runtime: "Node.js", from: "nuxt", paths: [""], routes: true, requests: charges },
  astro: { framework: "Astro", version: "astro", runtime: "Node.js", paths: PAGES },
  "astro-routes": { framework: "Astro, routes", version: "astro", runtime: "Node.js", from: "astro", paths: [""], routes: true, requests: charges },
  express: { framework: "Express", version: "express", runtime: "Node.js" },
  fastify: { framework: "Fastify", version: "fastify", runtime: "Node.js" },
  koa: { framework: "Koa", version: "koa", runtime: "Node.js" },
  nestjs: { framework: "NestJS, in CommonJS", version: "@nestjs/core", runtime: "Node.js" },
  "nestjs-routes": { framework: "NestJS, routes", version: "@nestjs/core", runtime: "Node.js", from: "nestjs", paths: [""], routes: true, requests: charges },
  trpc: {
    framework: "tRPC",
    version: "@trpc/server",
    runtime: "Node.js",
    requests: (port, path) => admitsTwo(port, path, { error: ({ error }) => error.data.code === "TOO_MANY_REQUESTS" }),
  },
  elysia: { framework: "Elysia", version: "elysia", runtime: "Bun" },
  // The build fails on any warning.
  webpack: { framework: "Node.js, bundled by webpack", version: "webpack", runtime: "Node.js" },
  "aws-lambda": { framework: "AWS Lambda, API Gateway", version: "@types/aws-lambda", runtime: "Node.js" },
  websocket: { framework: "WebSocket, ws", version: "ws", runtime: "Node.js", requests: answersMessages },
  "ai-sdk": { framework: "AI SDK", version: "ai", runtime: "Node.js", paths: ["/api/chat"], requests: settles },
  deno: { framework: "Deno.serve", version: "deno", runtime: "Deno" },
  bun: { framework: "Bun.serve", version: "bun", runtime: "Bun" },
  netlify: { framework: "Netlify Edge, edge-bundler", version: "@netlify/edge-bundler", runtime: "Deno" },
  vercel: { framework: "Routing Middleware, vercel build", version: "vercel", runtime: "Node.js" },
};
