import { ran } from "../../../gate";

export const load = (): object => (ran("account"), {});
