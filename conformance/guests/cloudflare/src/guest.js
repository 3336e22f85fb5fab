// What is one call from WebAssembly here would be several there.

/** A response of its fields, as JSON in one line or nothing, and its body, which is the rest. */
export function respond(status, text) {
  const end = text.indexOf("\n");
  const headers = end === 0 ? undefined : JSON.parse(text.slice(0, end));
  return new Response(text.slice(end + 1), { status, headers });
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
