"""The page at `/`: it holds nothing of the model, and asks `/watch` with the token that its reader types."""

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>posteria serve</title><style>
body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}
table{width:100%;border-collapse:collapse}td{padding:.3rem 0;border-bottom:1px solid #ddd}td+td{text-align:right}
#alarm{padding:.6rem;border-radius:.4rem;background:#e7f4ea}#alarm.on{background:#fbdcd9}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}#alarm{background:#1d3a25}#alarm.on{background:#5a1d18}}
</style><h1>posteria serve</h1><p><label>Token <input id="token" type="password" autocomplete="off"></label></p>
<p id="alarm">waiting</p><table id="table"></table><script>
const put = (id, text) => document.getElementById(id).textContent = text
const shown = v => v === null ? "-" : typeof v === "number" && !Number.isInteger(v) ? v.toPrecision(3) : String(v)
async function look() {
  try {
    const token = document.getElementById("token").value
    const answer = await fetch("watch", {headers: token ? {Authorization: "Bearer " + token} : {}})
    if (!answer.ok) { put("alarm", answer.status === 401 ? "type the token" : "status " + answer.status); return }
    const w = await answer.json(), c = w.coverage, u = w.uncertainty
    document.getElementById("alarm").className = c.alarm ? "on" : ""
    put("alarm", c.alarm ? "ALARM: intervals hold less than they promise (since outcome " + c.alarm_at + ")"
      : c.outcomes ? "coverage: no evidence against the promise" : "coverage: no outcomes yet")
    const unseen = Object.entries(w.requests_with_unseen_values).map(([k, n]) => k + " (" + n + ")").join(", ")
    const rows = [["requests", w.requests], ["rows", w.rows], ["rows outside the training range",
      w.rows_outside_training_range], ["columns with unseen values (requests)", unseen || "-"],
      ["uncertainty, recent / first (medians)", u.median_ratio], ["outcomes", c.outcomes],
      ["coverage promised", c.promised], ["coverage so far", c.so_far], ["log wealth of the bet", c.log_wealth]]
    const table = document.getElementById("table"); table.replaceChildren()
    for (const [name, value] of rows) {
      const line = table.insertRow(); line.insertCell().textContent = name
      line.insertCell().textContent = shown(value) }
  } catch (error) { put("alarm", "the server does not answer") }
}
look(); setInterval(look, 2000)</script></html>"""
