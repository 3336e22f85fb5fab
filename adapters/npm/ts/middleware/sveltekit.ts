import { only } from "../fields.js";
import type { Limiter } from "../limiter.js";
import { type Decider, GUARD, guard, type GuardOptions, type Limiting, type WaitUntil } from "./guard.js";

/** The part of SvelteKit's event that is used. */
export interface SvelteKitEvent {
  request: Request;
  getClientAddress(): string;
  platform?: Readonly<object> | undefined;
}

/**
 * A SvelteKit `handle`. Use `sequence` to put it before others:
 *
 *     export const handle = limit(tidegate);
 */
export function limit<Event extends SvelteKitEvent, By extends Decider = Limiter>(
  tidegate: Limiting<Event, Request, By>,
  options: GuardOptions<Event, Request, By> = {},
) {
  only(options as unknown, "", GUARD);
  return ({ event, resolve }: { event: Event; resolve(event: Event): Response | Promise<Response> }): Promise<Response> =>
    guard(tidegate, event.request, () => resolve(event), options, { context: event, waitUntil: waitUntil(event.platform), peer: peer(event) });
}

/** Where `waitUntil` is depends on the platform's adapter. */
function waitUntil(platform: object | undefined): WaitUntil | undefined {
  const { ctx, context } = (platform ?? {}) as Record<string, { waitUntil?: WaitUntil } | undefined>;
  const host = ctx ?? context;
  return host?.waitUntil?.bind(host);
}

/** SvelteKit throws while it prerenders a page, because there is no client. */
function peer(event: SvelteKitEvent): string | undefined {
  try {
    return event.getClientAddress();
  } catch {
    return undefined;
  }
}
