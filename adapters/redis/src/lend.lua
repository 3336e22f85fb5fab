-- A call on a state with loans: decides as the lender of tidegate-core does. `decide` is decide.lua as a function, over a row that is
-- changed here and written once.
--
-- KEYS     as in decide.lua. Loans follow a state as one more part, `ln1 <last> <borrowers> <number>:<units>:<until> ...;`: the number
--          of the last loan, how many borrowers there are in sixteenths, and each loan, ordered by their ends
-- ARGV     nothing, or what a borrower asks: `<wanted> <within> <owed> <lifetime>`, then of its last loan ` <number> <unspent> <kept>`;
--          then the arguments of decide.lua. Mode x removes the states; what is lent stays charged
-- Answers  as decide.lua does, also before a state without loans. A question's answer ends with `>` and the next loan, if there is one
local LIFETIME_MAX, LOANS_MAX, UNITS_MAX, NUMBERS_PER_MS, SIXTEENTHS = 60000, 64, 4294967296, 16, 16
-- The least life of a loan near the limit, and the longest time that a borrower looks back or ahead.
local LIFE_MIN, WITHIN_MAX = 1000, 262144
local floor, max, min, sub = math.floor, math.max, math.min, string.sub

local question = table.remove(ARGV, 1)
local mode, now, ttl_min, quotas_end = ARGV[1], ARGV[2], ARGV[4], #ARGV - #ARGV % 4
local name, resets = KEYS[1], sub(mode, 1, 1) == 'x'

local function corrupt(what)
  return redis.error_reply('CORRUPT ' .. what)
end

-- Only a state of one dimension is lent. It is short, and so are its loans.
local raw = redis.pcall('GETRANGE', name, '0', '4095')
local loans_at = #mode == 1 and type(raw) == 'string' and string.find(raw, 'ln1 ', 1, true)
if resets and not loans_at then
  redis.call('DEL', unpack(KEYS))
  return 'a'
end
if not loans_at and question == '' then
  local answer = decide(KEYS, ARGV, redis)
  return answer == '' and corrupt('loans') or answer
end

-- What is lent. `changed` is whether it must be written, and not only because time has passed.
local last, borrowers, loans, changed = 0, 0, {}, false

-- Reads the loans. Returns whether they are any.
local function read()
  local place, sum, before = nil, 0, 0
  last, borrowers, place = match(raw, '^ln1 (%d+) (%d+)()', loans_at)
  while place do
    local number, units, ends, rest = match(raw, '^ (%d+):(%d+):(%d+)()', place)
    if not number then
      break
    end
    number, units, ends, place = number + 0, units + 0, ends + 0, rest
    if number < 1 or number > last + 0 or ends > MAX_INSTANT or ends < before then
      return false
    end
    sum, before = sum + units, ends
    loans[#loans + 1] = { number, units, ends }
  end
  if not place or loans_at == 1 or sub(raw, place) ~= ';' or #loans > LOANS_MAX or sum > MAX_UNITS then
    return false
  end
  last, borrowers = last + 0, borrowers + 0
  for i = 5, quotas_end, 4 do
    if ARGV[i] ~= 'tb' and ARGV[i] ~= 'fw' and ARGV[i] ~= 'sw' and ARGV[i] ~= 'cw' then
      return false
    end
  end
  return last >= 1 and last <= 9007199254740992 and borrowers <= SIXTEENTHS * (LOANS_MAX + 1)
end

-- The row as decide.lua sees it, and how long it has written it for.
local state, life = loans_at and sub(raw, 1, loans_at - 1) or raw, nil
local time = redis.call('TIME')
local row = { error_reply = redis.error_reply }
function row.call(command, key, ...)
  if command == 'TIME' then
    return time
  elseif key ~= name then
    return redis.call(command, key, ...)
  elseif command == 'GETRANGE' then
    return state
  end
  state, life = ..., select(3, ...)
end

-- decide.lua on the row, with the policy of this call.
local function ask(what, at, cost, charged_at)
  local words = { what, at, format('%.0f', cost), ttl_min }
  for i = 5, quotas_end do
    words[i] = ARGV[i]
  end
  words[quotas_end + 1] = charged_at
  return decide({ name }, words, row)
end

-- floor(a * b / c), for b <= c.
local function share(a, b, c)
  local quotient = floor(a * b / c)
  while exceeds(quotient, c, a, b) do
    quotient = quotient - 1
  end
  while not exceeds(quotient + 1, c, a, b) do
    quotient = quotient + 1
  end
  return quotient
end

-- What is lent by loans that end after `from`, at `to` at the latest.
local function lent(from, to)
  local units = 0
  for _, loan in ipairs(loans) do
    if from < loan[3] and loan[3] <= to then
      units = units + loan[2]
    end
  end
  return units
end

-- Reads the parts of the state: for each quota the kind, the three parameters, and then
-- for a bucket: its level and when, for a window: its start, and what is used in it and in the one before it, for a calendar window also
-- its end and what was carried into it.
local function parts()
  local read, place = {}, 1
  for i = 5, quotas_end, 4 do
    local part = { kind = ARGV[i], limit = ARGV[i + 1] + 0, unit = ARGV[i + 2] + 0, refill = ARGV[i + 3] + 0 }
    local a, b, c
    if state == '' then
      a, b, c = 0, 0, 0
    elseif part.kind == 'sw' then
      a, b, c, place = match(state, '^sw1 (%d+) (%d+) (%d+);()', place)
    elseif part.kind == 'cw' then
      a, b, c, place = match(state, '^cw1 (%d+) (%d+) (%d+);()', place)
    else
      a, b, place = match(state, '^%l%l1 (%d+) (%d+);()', place)
    end
    if part.kind == 'tb' then
      part.level, part.at = a + 0, b + 0
    elseif part.kind == 'cw' then
      part.ends, part.used, part.carried = a + 0, b + 0, c + 0
      if state == '' then
        part.ends = calendar(part.unit, part.refill, now)
        part.carried = floor(part.refill / 1048576)
      end
      local _, start = calendar(part.unit, part.refill, max(part.ends - 1, 0))
      part.at = start
    else
      part.at, part.used, part.previous = a + 0, (c or b) + 0, c and b + 0
      if state == '' then
        part.at = now - now % part.unit
      end
    end
    read[#read + 1] = part
  end
  return read
end

local function write(parts)
  local texts = {}
  for place, part in ipairs(parts) do
    if part.kind == 'tb' then
      texts[place] = format('tb1 %.0f %.0f;', part.level, part.at)
    elseif part.kind == 'fw' then
      texts[place] = format('fw1 %.0f %.0f;', part.at, part.used)
    elseif part.kind == 'cw' then
      texts[place] = format('cw1 %.0f %.0f %.0f;', part.ends, part.used, part.carried)
    else
      texts[place] = format('sw1 %.0f %.0f %.0f;', part.at, part.previous, part.used)
    end
  end
  state = table.concat(texts)
end

-- Drains a bucket to an instant, but not below what is lent until then.
local function drain(part, at, units)
  local drained = part.level - max(at - part.at, 0) * part.refill
  part.level, part.at = max(drained, min(units * part.unit, MAX_UNITS)), max(at, part.at)
end

-- Brings the state to an instant, and forgets the loans that do not matter any more then.
local function settle(now)
  if #loans == 0 then
    return
  end
  local all = parts()
  for _, part in ipairs(all) do
    if part.kind == 'tb' then
      local since, at = part.at, max(now, part.at)
      local units = lent(since, MAX_INSTANT)
      for _, loan in ipairs(loans) do
        if since < loan[3] and loan[3] <= at then
          drain(part, loan[3], units)
          units = units - loan[2]
        end
      end
      drain(part, at, units)
    else
      part.used = max(part.used, lent(part.at, part.ends or part.at + part.unit))
      if part.kind == 'sw' then
        part.previous = max(part.previous, lent(max(part.at - part.unit, 0), part.at))
      end
    end
  end
  write(all)
  local kept = {}
  for _, loan in ipairs(loans) do
    for _, part in ipairs(all) do
      local start, matters = max(now - now % part.unit, part.at), nil
      if part.kind == 'cw' then
        local _, current = calendar(part.unit, part.refill, now)
        matters = loan[3] > max(current, part.at)
      elseif part.kind == 'tb' then
        matters = min(loan[3] + ceil(part.limit * part.unit / part.refill), MAX_INSTANT) > now
      elseif part.kind == 'fw' then
        matters = loan[3] > start
      else
        matters = loan[3] > max(start - part.unit, 0)
      end
      if matters then
        kept[#kept + 1] = loan
        break
      end
    end
  end
  loans = kept
end

-- The latest instant of the state. Loans that ended before it are settled.
local function latest()
  local latest = 0
  for _, part in ipairs(parts()) do
    latest = max(latest, part.at)
  end
  return latest
end

local function save()
  local texts = { state }
  if last > 0 then
    texts[2] = format('ln1 %.0f %.0f', last, borrowers)
    for _, loan in ipairs(loans) do
      texts[#texts + 1] = format(' %.0f:%.0f:%.0f', loan[1], loan[2], loan[3])
    end
    texts[#texts + 1] = ';'
  end
  local text = table.concat(texts)
  if life then
    -- Lent units may be spent until the last loan ends, and drain from then on.
    local lasts = #loans > 0 and max(loans[#loans][3] - now, 0) or 0
    redis.call('SET', name, text, 'PX', format('%.0f', life + lasts))
  elseif text ~= '' then
    redis.call('SET', name, text, 'KEEPTTL')
  end
end

-- Lent units may still be spent, so they stay charged. A reset carries no time, so a window's loans count as lent until it ends.
if resets then
  if read() and type(ask('p', format('%.0f', MAX_INSTANT), 0)) ~= 'table' then
    now = 0
    settle(now)
    local all, kept = parts(), {}
    for _, part in ipairs(all) do
      local units = lent(part.at, MAX_INSTANT)
      if part.kind == 'tb' then
        part.level = min(part.level, units * part.unit)
      else
        part.used, part.previous = min(part.used, units), 0
        part.carried = part.carried and floor(part.refill / 1048576)
      end
    end
    local since = latest()
    for _, loan in ipairs(loans) do
      if loan[3] > since then
        kept[#kept + 1] = loan
      end
    end
    if #kept > 0 then
      loans = kept
      write(all)
      save()
      return 'a'
    end
  end
  redis.call('DEL', name)
  return 'a'
end

if loans_at then
  if not read() then
    return corrupt('loans')
  end
  local checked = ask('p', now, 0)
  if type(checked) == 'table' then
    return checked
  end
end
now = now == 'server' and time[1] * 1000 + floor(time[2] / 1000) or now + 0
local now_text = format('%.0f', now)

-- Ends that a wrong clock has set are moved to the latest that is possible.
for _, loan in ipairs(loans) do
  if loan[3] > now + LIFETIME_MAX + MAX_SKEW then
    loan[3], changed = now + LIFETIME_MAX + MAX_SKEW, true
  end
end
settle(now)
local settled = state

-- Adds a loan under a new number.
local function add(units, ends)
  if #loans >= LOANS_MAX then
    -- The first one has ended. From now on it cannot be returned.
    table.remove(loans, 1)
  end
  last, changed = max(now * NUMBERS_PER_MS, last + 1), true
  local place = #loans + 1
  while place > 1 and loans[place - 1][3] > ends do
    place = place - 1
  end
  local loan = { last, units, ends }
  table.insert(loans, place, loan)
  return loan
end

-- Takes back the unspent part of a loan, and returns the part that is kept, which has no number any more. If the number is used up,
-- nothing happens.
local function take_back(number, unspent, kept)
  for place, loan in ipairs(loans) do
    if loan[1] == number then
      table.remove(loans, place)
      changed = true
      local units, ends = loan[2], loan[3]
      unspent = min(unspent, units)
      -- It ended within its window. What a bucket has drained since may have been this loan.
      ask('r', now_text, unspent, format('%.0f', max(ends - 1, 0)))
      kept = min(kept, units - unspent)
      return kept > 0 and ends > max(latest(), now) and { kept, ends } or nil
    end
  end
end

-- The least that is left of a quota, and the end of the first window to end.
local function standing(ends)
  local left = UNITS_MAX
  for _, part in ipairs(parts()) do
    local room
    if part.kind == 'tb' then
      room = floor(max(part.limit * part.unit - part.level, 0) / part.unit)
    else
      ends = min(ends, part.ends or part.at + part.unit)
      local weight = part.previous and part.previous - share(part.previous, max(now - part.at, 0), part.unit) or 0
      room = max(part.limit + (part.carried or 0) - part.used - weight, 0)
    end
    left = min(left, room)
  end
  return left, ends
end

-- How many more units to lend, and for how long: what is wanted for the longest life, or a borrower's part of half of what is left for
-- twice the time that it takes to spend it.
local function amount(asked, kept, left, shared_by, longest)
  local wanted, within = min(asked.wanted, UNITS_MAX), min(asked.within, WITHIN_MAX)
  local more, most = max(wanted - kept, 0), floor(left / (2 * shared_by))
  if more <= most then
    return more, longest
  end
  return most, min(max(LIFE_MIN, floor(2 * (most + kept) * within / wanted)), longest)
end

-- Lends what the question asks for. What the borrower keeps becomes a part of it.
local function lend(asked, kept)
  local others = 0
  for _, loan in ipairs(loans) do
    others = others + (loan[3] > now and 1 or 0)
  end
  if others >= LOANS_MAX then
    return nil
  end
  local before, here = borrowers, SIXTEENTHS * (others + 1)
  borrowers = max(here, before - ceil(max(before - here, 0) / (2 * SIXTEENTHS)))
  changed = changed or borrowers ~= before
  local left, ends = standing(min(now + min(asked.lifetime, LIFETIME_MAX), MAX_INSTANT))
  local still = kept and min(kept[1], UNITS_MAX) or 0
  local units, lasts = amount(asked, still, left, ceil(borrowers / SIXTEENTHS), max(ends - now, 0))
  ends = min(now + lasts, MAX_INSTANT)
  if units == 0 or ends <= now or sub(ask('c', now_text, units), 1, 1) ~= 'a' then
    return nil
  end
  return kept and add(units + kept[1], max(ends, kept[2])) or add(units, ends)
end

local asked, kept
if question ~= '' then
  local wanted, within, owed, lifetime, rest = match(question, '^(%d+) (%d+) (%d+) (%d+)(.*)$')
  asked = { wanted = wanted + 0, within = within + 0, lifetime = lifetime + 0 }
  local number, given_back, still = match(rest, '^ (%d+) (%d+) (%d+)$')
  kept = number and take_back(number + 0, given_back + 0, still + 0)
  -- What it has admitted without a loan is charged also beyond the limit.
  if owed ~= '0' then
    ask('o', now_text, min(owed + 0, UNITS_MAX))
  end
end

local before = state
local answer = decide(KEYS, ARGV, row)
if type(answer) == 'table' then
  return answer
end
local verdict = sub(answer, 1, 1)
local granted = asked and verdict == 'a' and lend(asked, kept) or kept and add(kept[1], kept[2])
if mode ~= 'p' and verdict ~= 'r' and (changed or state ~= settled) then
  save()
end
if mode ~= 's' and verdict ~= 'r' then
  answer = sub(answer, 1, #answer - #before) .. raw
end
if not asked then
  return answer
end
return answer .. '>' .. (granted and format('%.0f:%.0f:%.0f', granted[1], granted[2], granted[3]) or '')
