export const limit = (_tidegate, handler) => handler;
export const limitRoute = () => (_args, next) => next();
