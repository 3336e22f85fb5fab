// The middlewares between the types of their frameworks.

import { Tidegate } from "@tidegate/edge/memory";
import { limit as next } from "@tidegate/edge/next";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { limit as sveltekit } from "@tidegate/edge/sveltekit";
import { type Handle, type RequestEvent } from "@sveltejs/kit";
import { sequence } from "@sveltejs/kit/hooks";
import type { NextProxy } from "next/server.js";
import { createRequestHandler, type ServerBuild } from "react-router";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 / s"] } });

export const proxy: NextProxy = next(tidegate);
export const chosen: NextProxy = next(tidegate, {
  check: (request, event) => (event?.sourcePage === "/" ? null : { key: request.nextUrl.pathname }),
  denied: (verdict, request) => new Response(`${verdict.retryAfterMs} ${request.nextUrl.basePath}`, { status: 429 }),
});
// @ts-expect-error
next(tidegate, { check: (request) => ({ key: request.nextUrl.nothing }) });
// @ts-expect-error
next(tidegate, { refund: () => 1 });

export const handle = sveltekit(tidegate);
export const typed: Handle = sveltekit(tidegate, { check: (_, event) => ({ key: event.route.id ?? event.url.pathname }) });
export const both = sequence(handle, typed, sveltekit(tidegate, { check: (_, event: RequestEvent) => ({ key: event.url.pathname }) }));
// @ts-expect-error
export const untyped: Handle = sveltekit(tidegate, { check: (_, event) => ({ key: event.nothing }) });

export const remix = (build: ServerBuild) =>
  reactRouter(tidegate, createRequestHandler(build), { check: (_, [context]) => (context === undefined ? null : { cost: 2 }) });
