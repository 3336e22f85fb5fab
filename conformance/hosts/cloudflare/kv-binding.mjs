// A Miniflare plugin that provides the real KV binding with the Worker in kv.mjs behind it.

const KV_WORKER = "core:user:kv";

/** Binds the namespace as `name`, as seen from `location`. */
export function kvNamespace(name, location) {
  return { name, type: "kv", plugin: { package: import.meta.filename, name: "kv-locations" }, options: { location } };
}

export const plugins = {
  "kv-locations": {
    getBindings: (bindings = []) =>
      bindings.map(({ name, options }) => ({
        name,
        kvNamespace: { name: KV_WORKER, entrypoint: "Location", props: { json: JSON.stringify(options) } },
      })),
    getNodeBindings: () => ({}),
    getServices: () => [],
  },
};
