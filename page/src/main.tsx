import { render } from "preact";
import { App } from "./app";
import { begin } from "./live/live";
import "./style/colours.css";
import "./style/page.css";
import "./style/parts.css";
import "./style/job.css";
import "./style/views.css";

const place = document.getElementById("page");
if (place !== null) {
    begin();
    render(<App />, place);
}
