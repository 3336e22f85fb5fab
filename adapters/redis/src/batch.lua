-- Several decisions in one step: `decide` is decide.lua as a function, `plain` is plain.lua, and `lend` is lend.lua. A failed decision
-- does not affect the others.
--
-- KEYS     those of each decision, one after another
-- ARGV     for each decision: the number of its keys and of its arguments, then its arguments, which are those of decide.lua, of
--          plain.lua, or of lend.lua with a borrower's question
-- Answers  a list of what decide.lua answers, with `-` in front of the text of an error
local answers, key, argument = {}, 0, 0
while argument < #ARGV do
  local keys, arguments = {}, {}
  for place = 1, ARGV[argument + 1] do
    keys[place] = KEYS[key + place]
  end
  for place = 1, ARGV[argument + 2] do
    arguments[place] = ARGV[argument + 2 + place]
  end
  key, argument = key + #keys, argument + 2 + #arguments
  -- A kind has two letters. A mode has one, and also the quotas of at least two dimensions. A question begins with a number.
  local first = arguments[1]
  local done, answer = pcall(#first == 2 and plain or string.find(first, '^%d') and lend or decide, keys, arguments, redis)
  if answer == '' and #first == 2 then
    local quotas_end = #arguments - #arguments % 4
    local cost, now, ttl_min = unpack(arguments, quotas_end + 1)
    local mode = #keys > 1 and 'c' .. string.rep('1', #keys) or 'c'
    arguments = { mode, now or 'server', cost or '1', ttl_min or '1', unpack(arguments, 1, quotas_end) }
  end
  if answer == '' then
    done, answer = pcall(lend, keys, { '', unpack(arguments) })
  end
  if type(answer) == 'table' then
    done, answer = false, answer.err
  end
  answers[#answers + 1] = done and answer or '-' .. string.gsub(answer, '^%-', '')
end
return answers
