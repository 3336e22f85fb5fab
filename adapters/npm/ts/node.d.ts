// The part of Node.js's own module that is used.

declare module "node:async_hooks" {
  export class AsyncLocalStorage<T> {
    enterWith(store: T): void;
    getStore(): T | undefined;
  }
}
