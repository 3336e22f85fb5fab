export default defineNuxtConfig({
  compatibilityDate: "2026-06-01",
  // Presets for edge runtimes need it for a gate that reads TOML by WebAssembly, which they load as a module.
  nitro: { experimental: { wasm: true } },
});
