import type { Limiter } from "../limiter.js";
import { checkGuard, type Decider, guard, type GuardOptions, type Limiting, type Routing, type WaitUntil } from "./guard.js";

/** The part of SvelteKit's event that is used. */
export interface SvelteKitEvent {
  request: Request;
  getClientAddress(): string;
  platform?: Readonly<object> | undefined;
  /** The route's name has `[name]` for a parameter. Null if there is no route. */
  route?: { readonly id: string | null } | undefined;
  params?: Readonly<Record<string, string | undefined>> | undefined;
}

/**
 * A SvelteKit `handle`. Use `sequence` to put it before others:
 *
 *     export const handle = limit(tidegate);
 *
 * The rules of a gate match the path of a page also in requests for its data (`/page/__data.json`), and the path of the route to which
 * `reroute` leads, without the app's base path.
 */
export function limit<Event extends SvelteKitEvent, By extends Decider = Limiter>(
  tidegate: Limiting<Event, Request, By>,
  options: GuardOptions<Event, Request, By> = {},
) {
  checkGuard(tidegate, options);
  return ({ event, resolve }: { event: Event; resolve(event: Event): Response | Promise<Response> }): Promise<Response> =>
    guard(tidegate, event.request, () => resolve(event), options, {
      context: event,
      routing: routingOf(event),
      waitUntil: waitUntil(event.platform),
      peer: peer(event),
    });
}

/** `reroute` may have chosen another route than that of the URL. */
function routingOf({ request, route, params }: SvelteKitEvent): Routing {
  const id = route?.id ?? undefined;
  if (id === undefined) return { framework: "sveltekit", target: request.url };
  const path = id
    .split("/")
    // A group of routes has no segment of its own.
    .filter((segment) => segment !== "" && !/^\(.*\)$/.test(segment))
    .map((segment) => segment.replace(/\[\[?(\.\.\.)?(\w+)(?:=\w+)?\]?\]/g, (_, rest, name: string) => escaped(params?.[name] ?? "", rest !== undefined)))
    .filter((segment) => segment !== "");
  return { framework: "sveltekit", target: [request.url, `/${path.join("/")}`] };
}

/** The value of a parameter in a path. One of several segments keeps its slashes. */
function escaped(value: string, isRest: boolean): string {
  return isRest ? value.split("/").map(encodeURIComponent).join("/") : encodeURIComponent(value);
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
