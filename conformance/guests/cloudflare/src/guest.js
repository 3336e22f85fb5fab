// Each function here replaces several calls from WebAssembly to JavaScript.

/** Creates a response. `text` contains the fields, one per line, then an empty line and the body. */
export function respond(status, text) {
  const headers = {};
  let start = 0;
  for (let end; (end = text.indexOf("\n", start)) !== start; start = end + 1) {
    const colon = text.indexOf(":", start);
    headers[text.slice(start, colon)] = text.slice(colon + 2, end);
  }
  return new Response(text.slice(start + 1), { status, headers });
}

/** Creates a promise that `keep` resolves. */
export function promise() {
  let keep;
  const promise = new Promise((resolve) => (keep = resolve));
  promise.keep = keep;
  return promise;
}

export function keep(promise, value) {
  promise.keep(value);
}

/** Writes an event if the environment has a dataset of that name. Errors are ignored. */
export function record(env, dataset, index, ...blobs) {
  try {
    env[dataset]?.writeDataPoint({ indexes: [index], blobs, doubles: [] });
  } catch {}
}
