/** What a gate lacks that was not made for limits from data, for calendars, for credits, or for warnings. */
export const NEEDS_NUMBERS = 'write the option limits: limitsFromData, of "@tidegate/edge/gate/limits"';
export const NEEDS_CALENDAR = 'write the option calendar: calendarWindows, of "@tidegate/edge/gate/calendar"';
export const NEEDS_CREDITS = 'write the option credits: balances, of "@tidegate/edge/gate/credits"';
export const NEEDS_THRESHOLDS = 'write the option warnAt: warnAt(jsonLines()), of "@tidegate/edge/gate/warn-at"';
