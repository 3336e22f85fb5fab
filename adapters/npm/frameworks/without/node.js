export const limit = () => (_req, _res, next) => next();
