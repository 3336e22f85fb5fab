// One JavaScript call for each operation.

export function get(namespace, key, cacheTtl) {
  return namespace.get(key, { type: "arrayBuffer", cacheTtl });
}

/** Copies the bytes, because the platform may read them after the call. */
export function put(namespace, key, bytes, expirationTtl) {
  return namespace.put(key, bytes.slice(), { expirationTtl });
}

export function remove(namespace, key) {
  return namespace.delete(key);
}

export function wait(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
