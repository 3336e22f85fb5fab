/** The fields whose values are lists. */
const LISTS = ["ratelimit", "ratelimit-policy"];
const REMAINING = "x-ratelimit-remaining";

/** The app's response with a verdict's fields added: see `Verdict.onto`. */
export function onto(response: Response, { allowed, headers }: { allowed: boolean; headers: Readonly<Record<string, string>> }): Response {
  try {
    add(response.headers, headers, allowed);
    return response;
  } catch {
    // `Response.error()` can be neither changed nor copied, and nobody sees its headers.
    if (response.type === "error") return response;
    // The headers of a fetched response cannot be changed.
    const told = new Response(response.body, response);
    add(told.headers, headers, allowed);
    return told;
  }
}

function add(headers: Headers, ours: Readonly<Record<string, string>>, allowed: boolean): void {
  // Each call of a method takes a runtime such as workerd a microsecond.
  const theirs = allowed ? headers.get(REMAINING) : null;
  const keeps = theirs !== null && (headers.has("retry-after") || Number(theirs) < Number(ours[REMAINING] ?? Infinity));
  for (const name in ours) {
    // It is that of the body that the app's response replaces.
    if (name === "content-type") continue;
    if (LISTS.includes(name)) {
      if (!keeps || headers.has(name)) headers.append(name, ours[name]!);
    } else if (!keeps) {
      headers.set(name, ours[name]!);
    }
  }
}
