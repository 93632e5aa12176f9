-- All tenants' records, if they are of another version than the reader knows.
--
-- KEYS  1 records   2 version
-- ARGV  1 known version (empty: none)
-- gives { version, id, record, id, record ... }; nothing if the version is known; an empty version
-- if none was ever written
local version = redis.call('GET', KEYS[2]) or ''
if version ~= '' and version == ARGV[1] then return nil end
local all = redis.call('HGETALL', KEYS[1])
table.insert(all, 1, version)
return all
