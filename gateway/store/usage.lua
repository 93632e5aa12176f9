-- Adds counts to hashes, once for each batch.
--
-- KEYS  1 the batch's mark   2 ... hashes, one for each group of arguments
-- ARGV  1 how long the mark is kept, seconds   2 how long the hashes are, seconds
--       then for each hash: its hour, requests, prompt, cached and completion tokens
-- gives 1 if they were added, 0 if they were before
if not redis.call('SET', KEYS[1], 1, 'NX', 'EX', ARGV[1]) then return 0 end
local names = { 'requests', 'prompt', 'cached', 'completion' }
for i = 2, #KEYS do
  local first = 3 + (i - 2) * 5
  for j = 1, 4 do
    if ARGV[first + j] ~= '0' then
      redis.call('HINCRBY', KEYS[i], ARGV[first] .. '.' .. names[j], ARGV[first + j])
    end
  end
  redis.call('EXPIRE', KEYS[i], ARGV[2])
end
return 1
