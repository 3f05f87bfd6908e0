-- reserve: what is kept for a task that was moved between its gates too often.
-- A task moved too often is reserved: its slot gates go only to smaller places until it runs.
local function reserve(needs, h, id)
  for i = 1, #needs do
    local g = gate(needs[i].name)
    if g.kind == 's' and (not g.rp or h.place < g.rp) then g.rp, g.ri, g.dirty = h.place, id, true end
  end
end
local function unreserve(needs, id)
  for i = 1, #needs do
    local g = gate(needs[i].name)
    if g.ri == id then g.rp, g.ri, g.dirty, MARKS[g.name], RING = nil, nil, true, now, true end
  end
end
