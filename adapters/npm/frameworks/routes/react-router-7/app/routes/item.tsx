import { ran } from "../../gate";

export const loader = (): object => (ran("item"), {});

export default function Page() {
  return <p>item</p>;
}
