import { ran } from "../../gate";

export const loader = (): object => (ran("account"), {});

export default function Page() {
  return <p>account</p>;
}
