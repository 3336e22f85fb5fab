/** What a gate lacks that was not made for limits from data, or for calendars. */
export const NEEDS_NUMBERS = 'write the option limits: limitsFromData, of "@tidegate/edge/gate/limits"';
export const NEEDS_CALENDAR = 'write the option calendar: calendarWindows, of "@tidegate/edge/gate/calendar"';
