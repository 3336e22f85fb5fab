-- Several decisions in one step: `decide` is decide.lua as a function. A failed decision does not affect the others.
--
-- KEYS     those of each decision, one after another
-- ARGV     for each decision: the number of its keys and of its arguments, then its arguments
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
  local done, answer = pcall(decide, keys, arguments)
  if type(answer) == 'table' then
    done, answer = false, answer.err
  end
  answers[#answers + 1] = done and answer or '-' .. string.gsub(answer, '^%-', '')
end
return answers
