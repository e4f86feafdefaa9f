"""Style and script of the report's page."""

from __future__ import annotations

STYLE = """
:root{--bg:#fff;--ink:#1b1f24;--soft:#5b6470;--line:#dde2e8;--card:#f6f8fa;--good:#136a34;--goodbg:#e3f5e8;
--bad:#a4161a;--badbg:#fde5e5;--part:#7a4d00;--partbg:#fdf1d8;--accent:#1f5fbf;
--l0:#d7dce2;--l1:#9aa7b5;--l2:#b9c8f2;--l3:#b9c8f2;--l4:#7d9cf0;--l5:#7d9cf0;--l6:#1f7a45;--on6:#fff}
:root.dark{--bg:#14171b;--ink:#e6e9ed;--soft:#9aa4b0;--line:#2d333b;--card:#1c2127;--good:#7ddb9c;--goodbg:#16301f;
--bad:#ff9a9a;--badbg:#3d1a1c;--part:#f0c674;--partbg:#37290f;--accent:#8ab4f8;
--l0:#3a414a;--l1:#566270;--l2:#34457e;--l3:#34457e;--l4:#4a66c0;--l5:#4a66c0;--l6:#2f9e5d;--on6:#0b130e}
@media(prefers-color-scheme:dark){:root:not(.light){--bg:#14171b;--ink:#e6e9ed;--soft:#9aa4b0;--line:#2d333b;
--card:#1c2127;--good:#7ddb9c;--goodbg:#16301f;--bad:#ff9a9a;--badbg:#3d1a1c;--part:#f0c674;--partbg:#37290f;
--accent:#8ab4f8;--l0:#3a414a;--l1:#566270;--l2:#34457e;--l3:#34457e;--l4:#4a66c0;--l5:#4a66c0;--l6:#2f9e5d;
--on6:#0b130e}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1560px;margin:0 auto;padding:20px}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:0}h3{font-size:1rem;margin:0}
h4{font-size:.85rem;margin:.6em 0 .2em}
header{display:flex;flex-wrap:wrap;gap:4px 16px;align-items:baseline;margin-bottom:16px}
header button{margin-left:auto}
.sub{color:var(--soft);margin:0;font-size:.85rem}.sub.bad{color:var(--bad)}
small.sub{font-weight:400;white-space:nowrap}
button,input[type=search]{font:inherit;color:inherit;
background:var(--card);border:1px solid var(--line);border-radius:6px;padding:4px 10px}
button:focus-visible,input:focus-visible,summary:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:12px;margin-bottom:14px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.bar{display:flex;height:10px;border-radius:5px;overflow:hidden;margin:10px 0 6px;gap:1px}
.tile ul,.legend ul{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.85rem}
.tile i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:5px}
.l0{background:var(--l0)}.l1{background:var(--l1)}.l2{background:var(--l2)}.l3{background:var(--l3)}.l4{background:var(--l4)}
.l5{background:var(--l5)}.l6{background:var(--l6)}
details{margin:0 0 10px}summary{cursor:pointer;color:var(--soft);font-size:.9rem;padding:2px 0}
.legend ul{padding:6px 0}.scroll{overflow-x:auto}
.level{display:inline-block;border-radius:10px;padding:1px 9px;font-size:.8rem;white-space:nowrap;color:var(--ink)}
.level.l6{color:var(--on6)}
.filter{display:flex;flex-wrap:wrap;gap:8px 16px;align-items:center;margin:6px 0 10px;font-size:.9rem}
.filter output{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{text-align:left;padding:4px 8px;border-bottom:1px solid var(--line);vertical-align:top}
thead th{color:var(--soft);font-weight:600}
.matrix>thead{position:sticky;top:-1px;z-index:1}.matrix>thead th{background:var(--bg)}
.matrix>thead>tr:first-child>th.first{color:var(--ink)}
.matrix>thead>tr>th.first,.matrix>tbody>tr>td.first{border-left:1px solid var(--line);padding-left:12px}
.family th{padding-top:16px;color:var(--soft);font-size:.75rem;text-transform:uppercase;letter-spacing:.05em}
.op th{font-weight:400}.op th button{font:inherit;font-family:ui-monospace,monospace;background:none;border:0;padding:0;
text-align:left;cursor:pointer;color:var(--accent)}
.op th button::before{content:"▸ ";color:var(--soft)}.op th button[aria-expanded=true]::before{content:"▾ "}
.op th button{white-space:nowrap}
.matrix{border-collapse:separate;border-spacing:0}.matrix th,.matrix td{padding:4px 5px}
.matrix .family th{padding-top:16px}
.matrix th.suite span{writing-mode:vertical-rl;transform:rotate(180deg);font-size:.78rem}
.matrix th{vertical-align:bottom}
.class{color:var(--soft)}.mark{white-space:nowrap}
.good{color:var(--good)}td.bad,li.bad{color:var(--bad)}td.bad{background:var(--badbg);font-weight:600}
td.part{color:var(--part);background:var(--partbg)}
.details{display:flex;flex-wrap:wrap;gap:10px 16px;padding:6px 0 12px}
.details>p{flex:1 0 100%;margin:0;color:var(--soft)}
.cell{flex:1 1 300px;min-width:0;background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:10px 12px}
.cell p{margin:2px 0}
.worst{margin:0;padding-left:20px}.worst code,.worst pre{font:12px/1.4 ui-monospace,monospace}
.worst code{overflow-wrap:anywhere}.worst pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:2px 0}
.share{font-variant-numeric:tabular-nums}
figure{margin:8px 0}figure svg{width:100%;max-width:330px;height:auto;display:block}
figcaption{font-size:.75rem;color:var(--soft)}
rect{fill:var(--l4)}rect.over{fill:var(--bad)}svg text{fill:var(--ink);font:9px system-ui,sans-serif;text-anchor:middle}
svg text.axis{fill:var(--soft)}
.plain td:last-child{min-width:240px;overflow-wrap:anywhere}
main>h2{margin:26px 0 8px}
[hidden]{display:none!important}
@media(max-width:1180px){
main{padding:14px}
.matrix,.matrix>tbody{display:block}.matrix>thead{display:none}
.matrix>tbody>tr{display:block}
.matrix>tbody>tr>td,.matrix>tbody>tr>th{border:0;padding:0;display:block}
.family th{padding-top:18px!important}
.matrix>tbody>tr.op{display:flex;flex-wrap:wrap;gap:3px 6px;align-items:baseline;padding:9px 0 11px;
border-bottom:1px solid var(--line)}
.op>th{flex:1 1 auto}.op th button{font-size:.95rem}
.matrix>tbody>tr.op>td.first{flex:1 0 100%;padding:4px 0 0;border:0}
.op>td.first::before{content:attr(data-backend);display:inline-block;min-width:84px}
.matrix>tbody>tr.op>td.mark{border-radius:6px;padding:0 7px;background:var(--card);font-size:.8rem}
.op>td.mark.bad{background:var(--badbg)!important}.op>td.mark.part{background:var(--partbg)!important}
.op>td.mark.none{display:none}
.op>td.mark::before{content:attr(data-suite) " ";color:var(--soft);font-weight:400}
}
"""

SCRIPT = """
const rows=[...document.querySelectorAll('tr.op')],find=document.getElementById('find'),
bad=document.getElementById('failures'),shown=document.getElementById('shown');
for(const row of rows){const b=row.querySelector('button');
b.addEventListener('click',()=>{const open=b.getAttribute('aria-expanded')!=='true';
b.setAttribute('aria-expanded',open);row.nextElementSibling.hidden=!open})}
function filter(){const word=find.value.trim().toLowerCase();let count=0;
for(const row of rows){const fits=row.dataset.op.includes(word)&&(!bad.checked||'failed' in row.dataset);
row.hidden=!fits;count+=fits;
row.nextElementSibling.hidden=!fits||row.querySelector('button').getAttribute('aria-expanded')!=='true'}
for(const head of document.querySelectorAll('tr.family')){let row=head.nextElementSibling,any=false;
while(row&&!row.classList.contains('family')){any=any||(row.classList.contains('op')&&!row.hidden);row=row.nextElementSibling}
head.hidden=!any}
shown.textContent=count+' ops'}
find.addEventListener('input',filter);bad.addEventListener('change',filter);
document.getElementById('theme').addEventListener('click',()=>{const root=document.documentElement,
dark=root.classList.contains('dark')||(!root.classList.contains('light')&&matchMedia('(prefers-color-scheme:dark)').matches);
root.classList.toggle('dark',!dark);root.classList.toggle('light',dark)});
"""
