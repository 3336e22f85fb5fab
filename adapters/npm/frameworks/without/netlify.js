export const limit = () => (_request, context) => context.next();
