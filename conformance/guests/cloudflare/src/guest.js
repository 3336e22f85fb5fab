// What is one call from WebAssembly here would be several there.

/** A response of its fields, a line each, an empty line, and its body. */
export function respond(status, text) {
  const headers = {};
  let start = 0;
  for (let end; (end = text.indexOf("\n", start)) !== start; start = end + 1) {
    const colon = text.indexOf(":", start);
    headers[text.slice(start, colon)] = text.slice(colon + 2, end);
  }
  return new Response(text.slice(start + 1), { status, headers });
}

/** A promise that is kept later. */
export function promise() {
  let keep;
  const promise = new Promise((resolve) => (keep = resolve));
  promise.keep = keep;
  return promise;
}

export function keep(promise, value) {
  promise.keep(value);
}

/** Writes an event where the environment has a dataset of that name; that it cannot be written stops nothing. */
export function record(env, dataset, index, ...blobs) {
  try {
    env[dataset]?.writeDataPoint({ indexes: [index], blobs, doubles: [] });
  } catch {}
}
