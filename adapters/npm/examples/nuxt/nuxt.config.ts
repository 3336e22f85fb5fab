export default defineNuxtConfig({
  compatibilityDate: "2026-06-01",
  // Presets for edge runtimes need it, as they load WebAssembly as a module.
  nitro: { experimental: { wasm: true } },
});
