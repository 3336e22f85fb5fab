export const limit = () => (_context, next) => next();
